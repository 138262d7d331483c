"""`describe`: the numbers the runtime plans with, and refusals that name the config entry."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

import pytest

from jackfield.hookspecs import ModelsContext, Shard, UnsupportedModel
from jackfield_models_qwen.qwen import jackfield_models
from jackfield_models_qwen.settings import GENERATIONS, read_settings
from jackfield_models_qwen.shape import describe

QWEN2: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "vocab_size": 151936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "max_window_layers": 21,
    "sliding_window": 32768,
    "use_sliding_window": False,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
"""Qwen2.5-0.5B's, as published."""

QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "attention_bias": False,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "sliding_window": None,
    "use_sliding_window": False,
    "rope_theta": 1000000,
    "rope_scaling": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
"""Qwen3-0.6B's, as published."""

WINDOW: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 512}


def test_published_shapes() -> None:
    """Sizes and, within what is published, the number of parameters."""
    two, three = describe(QWEN2, Shard()), describe(QWEN3, Shard())
    assert two.weight_bytes == 2 * 494_032_768
    assert three.weight_bytes == 2 * 596_049_920
    assert (two.head_sizes, three.head_sizes) == ((64,), (128,))
    assert (two.max_context, three.max_context) == (32768, 40960)
    assert (two.dtype, two.features, three.features) == ("bfloat16", frozenset(), frozenset())
    assert {(x.num_heads, x.num_kv_heads, x.scale) for x in three.layers} == {(16, 8, 128**-0.5)}


def test_more_ranks_than_kv_heads() -> None:
    shape = describe({**QWEN2, "num_attention_heads": 16}, Shard(tp_size=4))
    assert {(x.num_heads, x.num_kv_heads) for x in shape.layers} == {(4, 1)}
    with pytest.raises(UnsupportedModel, match=r"14 heads / 2 KV heads.* sizes that can: 1, 2$"):
        describe(QWEN2, Shard(tp_size=4))


def test_the_layers_from_max_window_layers_on_have_the_window() -> None:
    shape = describe({**QWEN2, **WINDOW}, Shard())
    assert [layer.window for layer in shape.layers] == [None] * 21 + [512] * 3
    assert [(group.name, group.window, len(group.layers)) for group in shape.groups] == [
        ("full", None, 21),
        ("window", 512, 3),
    ]
    assert shape.features == {"window"}


def test_layer_types_go_before_max_window_layers() -> None:
    types = ["sliding_attention", *["full_attention"] * 23]
    shape = describe({**QWEN2, **WINDOW, "layer_types": types}, Shard())
    assert [layer.window for layer in shape.layers] == [512] + [None] * 23


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {**WINDOW, "sliding_window": None},
        {**WINDOW, "sliding_window": 32768, "max_window_layers": 0},
        {**WINDOW, "max_window_layers": 24},
        {**WINDOW, "layer_types": ["full_attention"] * 24},
    ],
)
def test_a_window_that_no_layer_has_or_that_hides_nothing_is_none(changes: dict[str, Any]) -> None:
    shape = describe({**QWEN2, **changes}, Shard())
    assert [group.kind for group in shape.groups] == ["full"]
    assert shape.features == frozenset()


def test_defaults_of_silent_configs_are_transformers() -> None:
    import transformers

    bare = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 30}
    for entries in ({}, {"use_sliding_window": True}, {"num_key_value_heads": None}):
        for architecture in GENERATIONS:
            config = {**bare, "num_attention_heads": 32, **entries}
            theirs = getattr(transformers, architecture.replace("ForCausalLM", "Config"))(**config)
            ours = read_settings({**config, "architectures": [architecture]})
            assert ours.num_kv_heads == theirs.num_key_value_heads
            assert ours.head_size == getattr(theirs, "head_dim", 2)
            assert ours.max_context == theirs.max_position_embeddings
            assert ours.tied == theirs.tie_word_embeddings
            assert ours.eps == theirs.rms_norm_eps
            assert ours.activation == theirs.hidden_act
            assert ours.window == theirs.sliding_window
            assert ours.windowed == tuple(kind == "sliding_attention" for kind in theirs.layer_types)
            assert ours.rope.get("rope_theta", 10000.0) == theirs.rope_parameters["rope_theta"]
            assert ours.o_bias == getattr(theirs, "attention_bias", False)


def test_qwen2_has_its_biases_whatever_attention_bias_says() -> None:
    """As in transformers, where the entry belongs to Qwen3."""
    for says in (True, False):
        two, three = (read_settings({**config, "attention_bias": says}) for config in (QWEN2, QWEN3))
        assert (two.qkv_bias, two.o_bias) == (True, False)
        assert (three.qkv_bias, three.o_bias) == (says, says)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"architectures": ["Qwen2MoeForCausalLM"]}, "architectures.*Qwen2MoeForCausalLM.*Qwen3ForCausalLM"),
        ({"dual_chunk_attention_config": {"chunk_size": 262144}}, "dual_chunk_attention_config"),
        ({"is_causal": False}, "is_causal"),
        ({"layer_types": ["sliding_attention"] * 24}, "layer_types.*use_sliding_window"),
        ({**WINDOW, "sliding_window": None, "layer_types": ["sliding_attention"] * 24}, "layer_types.*sliding_window"),
        ({**WINDOW, "layer_types": ["full_attention"]}, "layer_types.*24 layers"),
        ({**WINDOW, "layer_types": ["linear_attention"] * 24}, "layer_types"),
        ({**WINDOW, "sliding_window": 0}, "sliding_window"),
        ({**WINDOW, "max_window_layers": -1}, "max_window_layers"),
        ({"use_sliding_window": "yes"}, "use_sliding_window"),
        ({"num_key_value_heads": 4}, "num_key_value_heads.*14 heads.*4 KV heads"),
        ({"hidden_size": 900}, "head_dim.*900.*14"),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}, "rope_type 'mrope'"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config.*gptq"),
        ({"hidden_act": "quick_gelu"}, "hidden_act 'quick_gelu'.*silu"),
    ],
)
def test_a_config_that_is_not_done_is_refused_by_the_name_of_its_entry(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(UnsupportedModel, match=names):
        describe({**QWEN2, **changes}, Shard())


def test_the_manifest_lists_what_the_hook_offers() -> None:
    manifest = tomllib.loads((files("jackfield_models_qwen") / "plugin.toml").read_text())
    (row,) = manifest["plugin"]
    context = ModelsContext(kind="model", name="qwen", instance="qwen")
    assert sorted(row["architectures"]) == sorted(jackfield_models(context))
