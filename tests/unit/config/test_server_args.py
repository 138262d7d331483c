"""The record: ranges, contradictions, plugin choices, and that every field is described and can be sent as data."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError

from jackfield.config.errors import ConfigurationError
from jackfield.config.fields import Shape, facts_of
from jackfield.config.server_args import ServerArgs
from jackfield.config.sources import server_args_from_kwargs
from jackfield.hookspecs.kinds import KINDS

FACTS = facts_of(ServerArgs)


def test_every_kind_has_its_field_and_its_flag() -> None:
    for kind in KINDS.values():
        assert FACTS[kind.field].flag == kind.flag
        assert (FACTS[kind.field].shape is Shape.USES) == (not kind.exclusive)


def test_every_field_is_described_and_flags_and_variables_are_unique() -> None:
    flags = [flag for facts in FACTS.values() for flag in (facts.flag, *facts.aliases)]
    assert len(set(flags)) == len(flags)
    assert len({facts.variable for facts in FACTS.values()}) == len(FACTS)
    for facts in FACTS.values():
        assert facts.description.endswith((".", '"}; none: no sink.')), facts.name
        assert facts.group


def test_defaults_are_a_valid_configuration() -> None:
    args = ServerArgs()
    assert (args.host, args.port, args.page_size, args.dtype) == ("127.0.0.1", 30000, 1, "auto")
    assert all(args.plugin_for(kind.name) is None for kind in KINDS.values() if kind.exclusive)


def test_the_record_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        ServerArgs().port = 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", -1),
        ("port", 65536),
        ("port", "30000"),
        ("port", True),
        ("port", 1.5),
        ("page_size", 0),
        ("page_size", True),
        ("context_length", 0),
        ("max_total_tokens", -5),
        ("max_running_requests", 0),
        ("max_queued_requests", 0),
        ("max_prefill_tokens", 0),
        ("max_skips", 0),
        ("chunked_prefill_size", 0),
        ("chunked_prefill_size", -2),
        ("chunked_prefill_size", True),
        ("max_consecutive_prefills", 0),
        ("plugin_fault_limit", 0),
        ("random_seed", -1),
        ("random_seed", 2**63),
        ("debug", 1),
        ("debug", "yes"),
        ("dtype", "fp16"),
        ("device", "tpu"),
        ("topology", "threads"),
        ("check_invariants", "always"),
        ("plugin_faults", "ignore"),
        ("host", ""),
        ("model_path", ""),
        ("attention_backend", "not a name"),
        ("attention_backend", ""),
        ("plugin_allow", ["-x"]),
        ("json_model_override_args", "[1]"),
        ("json_model_override_args", "{"),
        ("preferred_sampling_params", 3),
        ("options", {"attention": {"x": 1}}),
        ("options", {"atention.torch": {"x": 1}}),
        ("options", {"attention.torch": 3}),
        ("options", {"attention.a_b": {}, "attention.a-b": {}}),
        ("metrics", [{"plugin": "p", "nmae": "x"}]),
        ("metrics", [{"as": "x"}]),
        ("metrics", ["p", "p"]),
    ],
)
def test_values_out_of_range_or_of_the_wrong_type_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError):
        ServerArgs(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("port", [0, 65535])
def test_the_ends_of_the_port_range_are_valid(port: int) -> None:
    assert ServerArgs(port=port).port == port


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"tp_size": 2}, "one rank only"),
        ({"pp_size": 2}, "one rank only"),
        ({"dp_size": 2}, "one rank only"),
        ({"max_total_tokens": 15, "page_size": 16}, "holds no page"),
        ({"max_prefill_tokens": 15, "page_size": 16}, "holds no page"),
        ({"chunked_prefill_size": 17, "page_size": 16}, "chunk of 17 tokens .* pages of 16 tokens"),
        ({"chunked_prefill_size": 64, "max_prefill_tokens": 32}, "step of 32 .* chunk of 64"),
        (
            {"attention_backend": "a", "prefill_attention_backend": "b", "decode_attention_backend": "c"},
            "no effect",
        ),
        ({"skip_tokenizer_init": True, "chat_template": "x"}, "tokenizer"),
        ({"revision": "main"}, "no revisions"),
    ],
)
def test_contradictions_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ServerArgs(**values)


def test_a_cache_of_exactly_one_page_is_enough() -> None:
    assert ServerArgs(max_total_tokens=16, page_size=16).max_total_tokens == 16


def test_names_have_one_spelling() -> None:
    args = ServerArgs(
        attention_backend="Flash_Attn",
        plugin_allow=("My.Plugin_Dist",),
        options={"schedule-policy.My_Policy": {"a": 1}},
    )
    assert args.attention_backend == "flash-attn"
    assert args.plugin_allow == ("my-plugin-dist",)
    assert args.options == {"schedule_policy.my-policy": {"a": 1}}


def test_auto_leaves_the_choice_free() -> None:
    args = ServerArgs(attention_backend="auto", load_format="auto")
    assert args.plugin_for("attention") is None
    assert args.plugin_for("loader") is None
    assert ServerArgs(load_format="gguf").plugin_for("loader") == "gguf"


def test_a_phase_prefers_its_own_attention() -> None:
    args = ServerArgs(attention_backend="both", decode_attention_backend="mine")
    assert args.plugin_for("attention", "prefill") == "both"
    assert args.plugin_for("attention", "decode") == "mine"


def test_a_plugin_may_be_used_twice_under_two_names() -> None:
    args = ServerArgs(
        metrics=["jsonl", {"plugin": "jsonl", "as": "Audit", "options": {"a": 1, "b": 1}}],  # type: ignore[arg-type]
        options={"metrics.audit": {"b": 2}},
    )
    assert [(use.plugin, use.instance) for use in args.uses("metrics")] == [("jsonl", "jsonl"), ("jsonl", "audit")]
    assert args.options_for("metrics", "audit") == {"a": 1, "b": 2}
    assert args.options_for("metrics", "jsonl") == {}


def test_a_single_use_needs_no_list() -> None:
    args, _ = server_args_from_kwargs({"metrics": "jsonl", "plugin_allow": "mine"}, {})
    assert args.metrics[0].plugin == "jsonl"
    assert args.plugin_allow == ("mine",)


def test_sglang_spellings_of_dtypes() -> None:
    assert ServerArgs(dtype="half").dtype == "float16"  # type: ignore[arg-type]
    assert ServerArgs(dtype="float").dtype == "float32"  # type: ignore[arg-type]


def test_it_survives_the_way_to_a_child_process_as_plain_data() -> None:
    args = ServerArgs(
        model_path="m",
        chat_template="t.jinja",  # type: ignore[arg-type]
        metrics=[{"plugin": "jsonl", "as": "audit"}],  # type: ignore[arg-type]
        options={"attention.torch": {"x": [1, {"y": 2.5}]}},
        json_model_override_args='{"a": {"b": 1}}',  # type: ignore[arg-type]
        plugin_allow=("a", "b"),
    )
    assert ServerArgs.model_validate(json.loads(json.dumps(args.model_dump(mode="json")))) == args


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, 1.5, -0.1, math.nan, math.inf])
def test_a_share_of_the_memory_lies_between_nothing_and_all(value: float) -> None:
    with pytest.raises(
        ConfigurationError, match=r"mem_fraction_static: .* no share of the memory: above 0 and below 1, such as 0.85"
    ):
        server_args_from_kwargs({"mem_fraction_static": value}, {})
    assert ServerArgs(mem_fraction_static=0.5).mem_fraction_static == 0.5


def test_a_kv_dtype_has_the_names_that_sglang_knows() -> None:
    for word, name in (("bf16", "bfloat16"), ("half", "float16"), ("fp8_e5m2", "fp8_e5m2"), ("auto", "auto")):
        assert server_args_from_kwargs({"kv_cache_dtype": word}, {})[0].kv_cache_dtype == name
    with pytest.raises(ConfigurationError, match="did you mean 'fp8_e4m3'"):
        server_args_from_kwargs({"kv_cache_dtype": "fp8_e4m"}, {})
