"""Which source wins, what is merged, and that the answer says where each value came from."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.config.fields import facts_of
from jackfield.config.limit_fields import LimitFields
from jackfield.config.server_args import ServerArgs
from jackfield.config.sources import load_server_args, server_args_from_kwargs

SOURCES = ("stack", "environment", "command line")


def write(folder: Path, text: str, name: str = "stack.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("given", [c for n in range(4) for c in itertools.combinations(SOURCES, n)])
def test_the_later_source_wins_for_every_set_of_sources(given: tuple[str, ...], tmp_path: Path) -> None:
    stack = write(tmp_path, "port = 1") if "stack" in given else None
    environ = {"JACKFIELD_PORT": "2"} if "environment" in given else {}
    line = {"port": "3"} if "command line" in given else {}
    args, provenance = load_server_args(line, environ, stack)
    expected = {
        "": (30000, "default"),
        "stack": (1, f"stack file {stack}"),
        "environment": (2, "environment JACKFIELD_PORT"),
        "command line": (3, "--port"),
    }[given[-1] if given else ""]
    assert (args.port, provenance["port"]) == expected


def test_every_field_has_a_provenance() -> None:
    args, provenance = load_server_args({}, {}, None)
    assert args == ServerArgs()
    assert provenance == dict.fromkeys(ServerArgs.model_fields, "default")


TEXTS: dict[str, tuple[str, Any]] = {
    "model_path": ("some/model", "some/model"),
    "download_dir": ("d", Path("d")),
    "context_length": ("64", 64),
    "json_model_override_args": ('{"a": 1}', {"a": 1}),
    "preferred_sampling_params": ('{"top_p": 0.5}', {"top_p": 0.5}),
    "is_embedding": ("true", True),
    "skip_tokenizer_init": ("true", True),
    "debug": ("yes", True),
    "gate": ("a,b", ["a", "b"]),
    "metrics": ("a,b", ["a", "b"]),
    "logits_processors": ("a,b", ["a", "b"]),
    "kv_tier": ("a,b", ["a", "b"]),
    "routes": ("auto,b", ["auto", "b"]),
    "kv_tier_block_tokens": ("32", 32),
    "observer": ('{plugin = "a", as = "c"}', ["a"]),
    "options": ('{"attention.torch" = {x = 1}}', {"attention.torch": {"x": 1}}),
    "plugin": (f"a.py{os.pathsep}b,c.py", (Path("a.py").absolute(), Path("b,c.py").absolute())),
    "plugin_time_budget": ("0.5", 0.5),
    "locked": ("l.toml", Path("l.toml")),
    "plugin_allow": ("a, b", ("a", "b")),
    "plugin_deny": ("a, cache.Radix", ("a", "cache.radix")),
    "quantization": ("W8A8-int8", "w8a8_int8"),
    "weight_cache_size": ("2.5", 2.5),
    "dtype": ("float32", "float32"),
    "device": ("cpu", "cpu"),
    "topology": ("inline", "inline"),
    "shutdown_timeout": ("3", 3),
    "sampling_defaults": ("openai", "openai"),
    "log_level": ("debug", "debug"),
    "plugin_faults": ("raise", "raise"),
    "check_invariants": ("step", "step"),
    "tp_size": ("1", 1),
    "pp_size": ("1", 1),
    "dp_size": ("1", 1),
    "random_seed": ("0", 0),
    "port": ("0", 0),
    "host": ("::1", "::1"),
    "served_model_name": ("m", "m"),
    "load_format": ("gguf", "gguf"),
    "max_prefill_tokens": ("8", 8),
    "chunked_prefill_size": ("-1", -1),
    "max_consecutive_prefills": ("8", 8),
    "request_waiting_timeout": ("0.5", 0.5),
    "request_running_timeout": ("60", 60.0),
    "disable_cuda_graph": ("on", True),
    "cuda_graph_bs": ("1, 8", (1, 8)),
    "cuda_graph_max_bs": ("8", 8),
    "max_total_tokens": ("8", 8),
    "max_running_requests": ("8", 8),
    "max_queued_requests": ("8", 8),
    "page_size": ("8", 8),
    "schedule_conservativeness": ("0.5", 0.5),
    "enable_deterministic_inference": ("yes", True),
    "max_skips": ("8", 8),
    "plugin_fault_limit": ("8", 8),
    "allowed_host": ("a,b", ("a", "b")),
    "grammar_compile_timeout": ("0.5", 0.5),
    "grammar_compile_memory": ("8", 8),
    "grammar_compilations": ("8", 8),
    "max_waiting_grammars": ("8", 8),
    "grammar_cache_bytes": ("0", 0),
    "cors_origin": ("http://a,https://b:1", ("http://a", "https://b:1")),
    "log_requests": ("on", True),
    "log_requests_level": ("3", 3),
    "log_requests_format": ("json", "json"),
    "chat_template_kwargs": ("none", ()),
    "incremental_streaming_output": ("on", True),
    "enable_response_store": ("true", True),
    "response_store_entries": ("5", 5),
    "response_store_bytes": ("4096", 4096),
    "drain_timeout": ("8", 8),
    "kv_cache_dtype": ("fp8_e5m2", "fp8_e5m2"),
    "mem_fraction_static": ("0.8", 0.8),
    "metrics_interval": ("8", 8),
    "throughput_log_interval": ("0", 0),
    "health_timeout": ("8", 8),
    "skip_server_warmup": ("true", True),
    # All of these are numbers.
    **{name: ("80", 80) for name in LimitFields.model_fields if name != "chat_template_kwargs"},
}


ALONE = [name for name in ServerArgs.model_fields if name not in ("revision", "chat_template")]
"""Fields that stand without another one or a file; the two have tests of their own."""


@pytest.mark.parametrize("name", ALONE)
def test_every_field_can_be_set_from_the_environment(name: str) -> None:
    text, expected = TEXTS.get(name, ("some-plugin", "some-plugin"))
    variable = facts_of(ServerArgs)[name].variable
    args, provenance = load_server_args({}, {variable: text}, None)
    value: Any = getattr(args, name)
    if name in ("gate", "logits_processors", "kv_tier", "metrics", "observer", "routes"):
        value = [use.plugin for use in value]
    assert value == expected
    assert provenance[name] == f"environment {variable}"


def test_the_stack_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    stack = write(tmp_path, "port = 1")
    args, _ = load_server_args({}, {"JACKFIELD_STACK": str(stack)}, None)
    assert args.port == 1
    other = write(tmp_path, "port = 2", "other.toml")
    args, _ = load_server_args({}, {"JACKFIELD_STACK": str(stack)}, other)
    assert args.port == 2


@pytest.mark.parametrize("environ", [{"JACKFIELD_STACK": ""}, {"JACKFIELD_PORT": ""}])
def test_a_variable_set_to_nothing_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(environ))):
        load_server_args({}, environ, None)


def test_an_unknown_variable_stops_the_start_and_offers_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="JACKFIELD_PAGE_SIZ; did you mean JACKFIELD_PAGE_SIZE"):
        load_server_args({}, {"JACKFIELD_PAGE_SIZ": "1"}, None)
    with pytest.raises(ConfigurationError, match=r"unknown environment variable JACKFIELD_XQZ"):
        load_server_args({}, {"JACKFIELD_XQZ": "1", "PATH": "x"}, None)


def test_all_wrong_variables_are_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_server_args({}, {"JACKFIELD_PORT": "x", "JACKFIELD_DEBUG": "maybe", "JACKFIELD_PROT": "1"}, None)
    for part in ("3 problems", "JACKFIELD_PORT: 'x' is not a whole number", "JACKFIELD_DEBUG", "JACKFIELD_PROT"):
        assert part in caught.value.message


def test_options_are_merged_field_by_field_and_each_keeps_its_source(tmp_path: Path) -> None:
    stack = write(tmp_path, '[options."attention.torch"]\na = 1\nb = 1\nc = 1\ndeep = {x = 1, y = 1}')
    environ = {"JACKFIELD_OPTIONS": '{"attention.torch" = {b = 2, c = 2}}'}
    line = {"options": ["attention.torch.c=3", "attention.torch.deep.y=3", "cache.radix.eviction=lru"]}
    args, provenance = load_server_args(line, environ, stack)
    assert args.options == {
        "attention.torch": {"a": 1, "b": 2, "c": 3, "deep": {"x": 1, "y": 3}},
        "cache.radix": {"eviction": "lru"},
    }
    assert provenance["options.attention.torch.a"] == f"stack file {stack}"
    assert provenance["options.attention.torch.b"] == "environment JACKFIELD_OPTIONS"
    assert provenance["options.attention.torch.c"] == "--option"


def test_options_in_a_list_of_uses_can_be_overridden_one_by_one(tmp_path: Path) -> None:
    stack = write(tmp_path, '[stack]\nmetrics = [{plugin = "jsonl", as = "audit", options = {a = 1, b = 1}}]')
    args, provenance = load_server_args({"options": ["metrics.audit.b=2"]}, {}, stack)
    assert args.options_for("metrics", "audit") == {"a": 1, "b": 2}
    assert provenance["options.metrics.audit.a"] == f"stack file {stack}"
    assert provenance["options.metrics.audit.b"] == "--option"


def test_a_list_of_plugins_is_replaced_not_extended(tmp_path: Path) -> None:
    stack = write(tmp_path, 'metrics = ["a", "b"]')
    args, _ = load_server_args({"metrics": ["c", '{plugin = "d", as = "e"}']}, {}, stack)
    assert [use.instance for use in args.metrics] == ["c", "e"]
    args, provenance = load_server_args({"metrics": ["none"]}, {}, stack)
    assert args.metrics == ()
    assert provenance["metrics"] == "--metrics"


def test_none_and_auto_undo_an_earlier_source(tmp_path: Path) -> None:
    stack = write(tmp_path, 'max_total_tokens = 64\ncache_policy = "radix"')
    args, _ = load_server_args({"max_total_tokens": "none", "cache_policy": "auto"}, {}, stack)
    assert (args.max_total_tokens, args.cache_policy) == (None, None)


def test_a_later_attention_for_both_phases_undoes_earlier_ones_for_one(tmp_path: Path) -> None:
    stack = write(tmp_path, '[stack]\nattention = {prefill = "a", decode = "b"}')
    args, provenance = load_server_args({"attention_backend": "c"}, {}, stack)
    assert [args.plugin_for("attention", phase) for phase in ("prefill", "decode")] == ["c", "c"]
    assert provenance["prefill_attention_backend"] == "default"


def test_later_attentions_for_each_phase_undo_an_earlier_one_for_both(tmp_path: Path) -> None:
    stack = write(tmp_path, '[stack]\nattention = "c"')
    line = {"prefill_attention_backend": "a", "decode_attention_backend": "b"}
    args, _ = load_server_args(line, {}, stack)
    assert [args.plugin_for("attention", phase) for phase in ("prefill", "decode")] == ["a", "b"]
    assert args.attention_backend is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"port": "x"}, "--port: 'x' is not a whole number"),
        ({"schedule_conservativeness": "x"}, "--schedule-conservativeness: 'x' is not a number"),
        ({"schedule_conservativeness": "nan"}, "--schedule-conservativeness: nan is not valid"),
        (
            {"schedule_conservativeness": "0"},
            "--schedule-conservativeness: 0.0 is not valid: it must be greater than 0",
        ),
        ({"request_waiting_timeout": "soon"}, "--request-waiting-timeout: 'soon' is not a number"),
        ({"request_waiting_timeout": "0"}, "--request-waiting-timeout: 0.0 is not valid: it must be greater than 0"),
        ({"request_running_timeout": "inf"}, "--request-running-timeout: inf is not valid"),
        ({"port": "70000"}, "--port: 70000 is not valid: it must be less than or equal to 65535"),
        ({"topology": "proceses"}, "--topology: 'proceses' is not one of its values (processes, inline); did you mean"),
        ({"dtype": "int8"}, "--dtype: 'int8' is not one of its values; valid: auto, float32, float16, bfloat16"),
        ({"tp_size": "2"}, "--tp-size: this version runs one rank only"),
        ({"options": ["attention.torch"]}, "--option: 'attention.torch' is not of the form kind.instance.field=value"),
        ({"options": ["cache_policy.radix.x=1"]}, "did you mean 'cache.radix'?"),
        ({"options": ["attention.t.a=1", "attention.t.a.b=1"]}, "a value and a table at the same time"),
        ({"metrics": ["{plugin"]}, "--metrics: '{plugin' is not a TOML table"),
        ({"metrics": ['{plugin = "a", name = "b"}']}, "--metrics[0].name: there is no such entry"),
        ({"json_model_override_args": "{"}, "--json-model-override-args: not valid JSON"),
        ({"chat_template": "nowhere.jinja"}, "--chat-template: there is no file 'nowhere.jinja'"),
        ({"max_total_tokens": "3", "page_size": "4"}, "--max-total-tokens, --page-size: a KV cache of 3 tokens"),
        ({"max_prefill_tokens": "1", "page_size": "4"}, "--max-prefill-tokens, --page-size"),
    ],
)
def test_a_bad_value_is_named_with_its_flag(line: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_server_args(line, {}, None)
    assert said in caught.value.message


def test_a_contradiction_names_both_sources(tmp_path: Path) -> None:
    stack = write(tmp_path, "page_size = 16")
    with pytest.raises(ConfigurationError) as caught:
        load_server_args({"max_total_tokens": "3"}, {}, stack)
    assert f"stack file {stack}: page_size" in caught.value.message
    assert "--max-total-tokens" in caught.value.message


def test_a_revision_needs_a_model_of_the_hub(tmp_path: Path) -> None:
    args, _ = load_server_args({"model_path": "org/name", "revision": "v1"}, {}, None)
    assert args.revision == "v1"
    with pytest.raises(ConfigurationError, match="local model has no revisions"):
        load_server_args({"model_path": str(tmp_path), "revision": "v1"}, {}, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("0.5", 0.5),
        ("true", True),
        ("lru", "lru"),
        ('"8"', "8"),
        ("[1, 2]", [1, 2]),
        ("{a = 1}", {"a": 1}),
        ("", ""),
        ("a=b", "a=b"),
        ("1\nx = 2", "1\nx = 2"),
    ],
)
def test_an_option_is_toml_or_else_text(text: str, value: object) -> None:
    args, _ = load_server_args({"options": [f"attention.torch.x={text}"]}, {}, None)
    assert args.options["attention.torch"]["x"] == value
    assert type(args.options["attention.torch"]["x"]) is type(value)


def test_a_chat_template_from_the_environment(tmp_path: Path) -> None:
    template = write(tmp_path, "x", "chat.jinja")
    args, provenance = load_server_args({}, {"JACKFIELD_CHAT_TEMPLATE": str(template)}, None)
    assert args.chat_template == template
    assert provenance["chat_template"] == "environment JACKFIELD_CHAT_TEMPLATE"


def test_keyword_arguments_are_the_last_source(tmp_path: Path) -> None:
    stack = write(tmp_path, "port = 1\npage_size = 2\nmax_skips = 3")
    args, provenance = server_args_from_kwargs(
        {"stack": stack, "page_size": 4, "model_path": tmp_path, "options": {"cache.radix": {"a": 1}}},
        {"JACKFIELD_MAX_SKIPS": "5"},
    )
    assert (args.port, args.page_size, args.max_skips, args.model_path) == (1, 4, 5, str(tmp_path))
    assert provenance["page_size"] == "argument page_size"
    assert provenance["options.cache.radix.a"] == "argument options"


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"page_siz": 1}, "there is no argument 'page_siz'; did you mean 'page_size'?"),
        ({"page_size": "16"}, "argument page_size: '16' is not valid: it must be a whole number (without quotes)"),
        ({"options": 3}, "argument options: options must be a table of tables, not int"),
        ({"options": {"attention.torch": 3}}, "must be a table"),
        ({"metrics": 3}, "argument metrics"),
    ],
)
def test_a_bad_keyword_argument_is_named(kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        server_args_from_kwargs(kwargs, {})
    assert said in caught.value.message


@pytest.mark.parametrize("value", [[1, 2, 8], (1, 2, 8), "1 2 8", "1,2, 8", ["1", 2, "8"], range(1, 9)])
def test_sizes_of_graphs_from_keywords_and_files(tmp_path: Path, value: Any) -> None:
    wanted = tuple(value) if isinstance(value, range) else (1, 2, 8)
    assert server_args_from_kwargs({"cuda_graph_bs": value}, {})[0].cuda_graph_bs == wanted
    if isinstance(value, str | list):
        file = tmp_path / "stack.toml"
        file.write_text(f"cuda_graph_bs = {json.dumps(value)}")
        assert load_server_args({}, {}, file)[0].cuda_graph_bs == wanted
    if isinstance(value, str):
        assert load_server_args({}, {"JACKFIELD_CUDA_GRAPH_BS": value}, None)[0].cuda_graph_bs == wanted


@pytest.mark.parametrize("value", [[True], True, [1.0], 2.5, [0], [None], {"a": 1}])
def test_sizes_of_graphs_that_are_none_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="argument cuda_graph_bs"):
        server_args_from_kwargs({"cuda_graph_bs": value}, {})
    assert server_args_from_kwargs({"cuda_graph_bs": None}, {})[0].cuda_graph_bs == ()
    assert server_args_from_kwargs({"cuda_graph_bs": 8}, {})[0].cuda_graph_bs == (8,)
