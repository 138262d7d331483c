"""`describe`: the numbers the runtime plans with, and refusals that name the config entry."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from jackfield.hookspecs import ModelsContext, Shard, UnsupportedModel
from jackfield_models_llama.llama import jackfield_models
from jackfield_models_llama.settings import FAMILIES, read_settings
from jackfield_models_llama.shape import describe

CONTEXT = ModelsContext(kind="model", name="llama", instance="llama")

SMOLLM2: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}

SMOLLM3_WINDOW: dict[str, Any] = {
    "architectures": ["SmolLM3ForCausalLM"],
    "use_sliding_window": True,
    "sliding_window": 64,
}


def config(**changes: Any) -> dict[str, Any]:
    return {**SMOLLM2, **changes}


def test_the_embedded_models_shape() -> None:
    shape = describe(SMOLLM2, Shard())
    assert (shape.num_layers, shape.hidden_size, shape.vocab_size) == (30, 576, 49152)
    assert (shape.max_context, shape.dtype, shape.features) == (8192, "bfloat16", frozenset())
    assert shape.weight_bytes == 2 * 134_515_008  # the model's published number of parameters
    assert shape.head_sizes == (64,)
    assert [layer.id for layer in shape.layers] == list(range(30))
    assert {(x.num_heads, x.num_kv_heads, x.scale, x.window) for x in shape.layers} == {(9, 3, 0.125, None)}
    assert shape.kv_elements_per_token() == 30 * 3 * 128


@pytest.mark.parametrize("size", [2, 4, 6, 9])
def test_b79_ranks_that_cannot_share_the_heads_are_refused_by_numbers(size: int) -> None:
    with pytest.raises(UnsupportedModel, match=r"9 heads / 3 KV heads.* sizes that can: 1, 3$"):
        describe(SMOLLM2, Shard(tp_size=size))


def test_a_rank_describes_its_own_share() -> None:
    shape = describe(SMOLLM2, Shard(tp_rank=1, tp_size=3))
    assert {(x.num_heads, x.num_kv_heads) for x in shape.layers} == {(3, 1)}
    assert shape.groups[0].num_kv_heads == 1
    assert shape.weight_bytes < describe(SMOLLM2, Shard()).weight_bytes / 2


def test_more_ranks_than_kv_heads_share_them() -> None:
    shape = describe(config(num_attention_heads=8, num_key_value_heads=2, hidden_size=512), Shard(tp_size=4))
    assert {(x.num_heads, x.num_kv_heads) for x in shape.layers} == {(2, 1)}


def test_pipeline_stages_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="pipeline"):
        describe(SMOLLM2, Shard(pp_size=2))


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architectures.*GPT2LMHeadModel"),
        ({"architectures": None}, "architectures"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_hidden_layers": "30"}, "num_hidden_layers.*'30'"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers.*4096"),  # an object a layer, before any file is read
        ({"intermediate_size": 10**30}, "intermediate_size"),
        ({"hidden_act": 0}, "hidden_act 0"),
        ({"hidden_act": ["silu"]}, "hidden_act"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"num_key_value_heads": 4}, "num_key_value_heads.*9 heads.*4 KV heads"),
        ({"hidden_size": 500}, "head_dim.*500.*9"),
        ({"head_dim": 63}, "head of size 63.*even"),
        ({"hidden_act": "quick_gelu"}, "hidden_act 'quick_gelu'.*silu"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"is_causal": False}, "is_causal"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config.*awq"),
        ({"dtype": "float8_e4m3fn"}, "dtype.*float8"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "rope_parameters.rope_type 'spiral'.*yarn"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "rope_scaling.factor"),
        ({"rope_parameters": {"rope_theta": -1.0}}, "rope_parameters.rope_theta"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 0}, "sliding_window"),
        ({"architectures": ["SmolLM3ForCausalLM"], "no_rope_layers": [1]}, "no_rope_layers.*30 layers"),
        ({**SMOLLM3_WINDOW, "layer_types": ["full_attention"]}, "layer_types"),
        ({**SMOLLM3_WINDOW, "layer_types": ["linear_attention"] * 30}, "layer_types"),
        ({**SMOLLM3_WINDOW, "use_sliding_window": "yes"}, "use_sliding_window"),
    ],
)
def test_a_bad_config_is_refused_by_the_name_of_its_entry(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(UnsupportedModel, match=names):
        describe(config(**changes), Shard())


def mistral(**changes: Any) -> dict[str, Any]:
    return config(architectures=["MistralForCausalLM"], **changes)


def test_mistrals_window_makes_a_window_group_and_asks_for_the_feature() -> None:
    shape = describe(mistral(sliding_window=1024), Shard())
    assert shape.features == {"window"}
    assert (shape.groups[0].kind, shape.groups[0].window) == ("window", 1024)
    assert {layer.window for layer in shape.layers} == {1024}
    assert {layer.group for layer in shape.layers} == {shape.groups[0].name}


def test_layers_with_and_without_a_window_are_two_groups() -> None:
    """By `layer_types`; without them transformers' own rule: the layers that have no rotary."""
    from transformers import SmolLM3Config

    for types in (None, ["sliding_attention", *["full_attention"] * 28, "sliding_attention"]):
        shape = describe(config(**SMOLLM3_WINDOW, layer_types=types), Shard())
        theirs = SmolLM3Config(num_hidden_layers=30, use_sliding_window=True, sliding_window=64, layer_types=types)
        assert [layer.window is not None for layer in shape.layers] == [
            kind == "sliding_attention" for kind in theirs.layer_types or []
        ]
        assert [(group.name, group.kind, group.window) for group in shape.groups] == [
            ("full", "full", None),
            ("window", "window", 64),
        ]
        for group in shape.groups:
            assert group.layers == tuple(layer.id for layer in shape.layers if layer.group == group.name)
        assert shape.features == {"window"}


@pytest.mark.parametrize(
    "changes", [{"use_sliding_window": False}, {"sliding_window": None}, {"layer_types": ["full_attention"] * 30}]
)
def test_a_window_that_no_layer_has_is_none(changes: dict[str, Any]) -> None:
    shape = describe(config(**{**SMOLLM3_WINDOW, **changes}), Shard())
    assert [group.kind for group in shape.groups] == ["full"]
    assert shape.features == frozenset()


@pytest.mark.parametrize("window", [None, 8192, 100_000])
def test_a_window_that_hides_nothing_is_none(window: int | None) -> None:
    shape = describe(mistral(sliding_window=window), Shard())
    assert shape.features == frozenset()
    assert (shape.groups[0].kind, shape.layers[0].window) == ("full", None)


def test_defaults_of_silent_configs_are_transformers() -> None:
    """Every family, from a config that says only what has no default."""
    import transformers

    bare = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 5}
    for architecture in FAMILIES:
        theirs = getattr(transformers, architecture.replace("ForCausalLM", "Config"))(**bare, num_attention_heads=16)
        ours = read_settings({**bare, "num_attention_heads": 16, "architectures": [architecture]})
        assert ours.num_kv_heads == theirs.num_key_value_heads
        assert ours.max_context == theirs.max_position_embeddings
        assert ours.tied == theirs.tie_word_embeddings
        assert ours.eps == theirs.rms_norm_eps
        assert ours.activation == theirs.hidden_act
        assert ours.window == getattr(theirs, "sliding_window", None)
        assert ours.rope.get("rope_theta", 10000.0) == theirs.rope_parameters["rope_theta"]
        assert list(ours.rotary) == [bool(x) for x in getattr(theirs, "no_rope_layers", [1] * 5)]
        assert (ours.qkv_bias, ours.o_bias, ours.mlp_bias) == (False, False, False)


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        ({"rope_type": "linear", "factor": 4.0}, 32768),
        ({"rope_type": "yarn", "factor": 4.0}, 32768),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}, 8192),
        ({"rope_type": "dynamic", "factor": 4.0}, 8192),
        (
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 1024,
            },
            8192,
        ),
    ],
)
def test_context_length_of_scaled_positions(rope: dict[str, Any], context: int) -> None:
    assert describe(config(rope_parameters=rope), Shard()).max_context == context


def test_the_manifest_lists_what_the_hook_offers() -> None:
    import tomllib
    from importlib.resources import files

    manifest = tomllib.loads((files("jackfield_models_llama") / "plugin.toml").read_text())
    (row,) = manifest["plugin"]
    assert sorted(row["architectures"]) == sorted(jackfield_models(CONTEXT))


def test_describing_imports_no_torch() -> None:
    code = (
        "import sys, json\n"
        "from jackfield_models_llama.llama import jackfield_models\n"
        "from importlib import import_module\n"
        "from jackfield.hookspecs import ModelsContext\n"
        "context = ModelsContext(kind='model', name='llama', instance='llama')\n"
        "module, name = jackfield_models(context)['LlamaForCausalLM'].shape.split(':')\n"
        "from jackfield.hookspecs import Shard\n"
        "getattr(import_module(module), name)(json.loads(sys.argv[1]), Shard())\n"
        "heavy = {'torch', 'transformers', 'numpy.testing'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    import json

    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(SMOLLM2)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
