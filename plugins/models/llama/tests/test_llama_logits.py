"""Logits equal to transformers' at every position, over the family's variants, in float32."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, MistralConfig, SmolLM3Config

from jackfield.testing.conformance import ModelConformance
from jackfield.testing.model_variations import ROPES as SCALED

BASE: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
IDS = [int(i) for i in np.random.default_rng(3).integers(0, 97, 60)]

ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 500.0},
    **{name: {**rope, "rope_theta": 500000.0 if name == "llama3" else 10000.0} for name, rope in SCALED.items()},
}

VARIANTS: dict[str, Any] = {
    "gqa": LlamaConfig(**BASE),
    "mha": LlamaConfig(**{**BASE, "num_key_value_heads": 4}),
    "mqa": LlamaConfig(**{**BASE, "num_key_value_heads": 1}),
    "wide-heads": LlamaConfig(**BASE, head_dim=24),
    "tied": LlamaConfig(**BASE, tie_word_embeddings=True),
    "biases": LlamaConfig(**BASE, attention_bias=True, mlp_bias=True),
    "gelu": LlamaConfig(**BASE, hidden_act="gelu"),
    "gelu-tanh": LlamaConfig(**BASE, hidden_act="gelu_pytorch_tanh"),
    "eps": LlamaConfig(**BASE, rms_norm_eps=0.5),
    "mistral-window": MistralConfig(**BASE, sliding_window=7),
    "mistral-window-of-one": MistralConfig(**BASE, sliding_window=1),
    "mistral-full": MistralConfig(**BASE, sliding_window=None),
    "mistral-heads": MistralConfig(**BASE, sliding_window=None, head_dim=32),
    "smollm3": SmolLM3Config(**{**BASE, "num_hidden_layers": 5}),
    "smollm3-listed": SmolLM3Config(**BASE, no_rope_layers=[0, 1, 0], attention_bias=True),
    **{f"rope-{name}": LlamaConfig(**BASE, rope_parameters=dict(rope)) for name, rope in ROPES.items()},
    "mistral-yarn": MistralConfig(**BASE, sliding_window=9, rope_parameters=dict(ROPES["yarn"])),
}


class TestConformance(ModelConformance):
    plugin = "llama"


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_equal_transformers(rig: Any, name: str) -> None:
    reference, directory = rig.checkpoint(VARIANTS[name])
    model, report = rig.make(rig.config(directory), rig.read_weights(directory))
    assert report.ok, report.problems()
    rig.assert_close(rig.logits(model, IDS), rig.reference_logits(reference, IDS))


@pytest.mark.parametrize("name", ROPES)
def test_the_old_config_layout_gives_the_same_model(rig: Any, name: str) -> None:
    """B76 (c): rope_theta and rope_scaling at the top level, torch_dtype for dtype, "type" for "rope_type"."""
    reference, directory = rig.checkpoint(LlamaConfig(**BASE, rope_parameters=dict(ROPES[name])))
    config = rig.config(directory)
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = None if rope["type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    model, report = rig.make(config, rig.read_weights(directory))
    assert report.ok
    rig.assert_close(rig.logits(model, IDS), rig.reference_logits(reference, IDS))


def test_without_any_theta_the_default_of_the_family_holds(rig: Any) -> None:
    """B76 (e): as in transformers, a config that lost its theta means 10000."""
    _, directory = rig.checkpoint(LlamaConfig(**BASE, rope_parameters={"rope_type": "default", "rope_theta": 77.0}))
    config = rig.config(directory)
    del config["rope_parameters"]
    (directory / "config.json").write_text(json.dumps(config))
    reference = rig.reopen(directory, torch.float32)
    assert reference.config.rope_parameters["rope_theta"] == 10000.0
    model, _ = rig.make(config, rig.read_weights(directory))
    rig.assert_close(rig.logits(model, IDS), rig.reference_logits(reference, IDS))


@pytest.mark.parametrize("name", ["dynamic", "longrope"])
def test_length_dependent_rope_follows_the_context_length_of_the_run(rig: Any, name: str) -> None:
    """Beyond the original context, a sequence as long as the run equals transformers; so does any in a short run."""
    original = 32
    base = {**BASE, "max_position_embeddings": 32 if name == "dynamic" else 128}
    reference, directory = rig.checkpoint(LlamaConfig(**base, rope_parameters=dict(ROPES[name])))
    config = rig.config(directory)
    for length, run in ((len(IDS), len(IDS)), (original - 1, original), (5, original)):
        model, _ = rig.make(config, rig.read_weights(directory), max_context=run)
        ids = IDS[:length]
        rig.assert_close(rig.logits(model, ids), rig.reference_logits(reference, ids))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "sizes"), [(6, 6, (2, 3)), (6, 3, (3, 6)), (6, 1, (2, 3)), (6, 2, (2, 6))]
)
def test_ranks_together_give_the_whole_models_logits(
    rig: Any, heads: int, kv_heads: int, sizes: tuple[int, ...]
) -> None:
    """Heads split, KV heads split or shared, a vocabulary that does not divide, biases added once."""
    config = LlamaConfig(
        **{**BASE, "hidden_size": 96, "num_attention_heads": heads, "num_key_value_heads": kv_heads},
        head_dim=16,
        attention_bias=True,
        mlp_bias=True,
    )
    reference, directory = rig.checkpoint(config)
    expected = rig.reference_logits(reference, IDS)
    for size in sizes:
        for logits in rig.sharded_logits(directory, IDS, size):
            rig.assert_close(logits, expected)


def test_a_checkpoint_in_low_precision_runs_in_float32(rig: Any) -> None:
    reference, directory = rig.checkpoint(LlamaConfig(**BASE))
    reference.to(torch.bfloat16).save_pretrained(directory)
    model, report = rig.make(rig.config(directory), rig.read_weights(directory))
    assert report.ok
    reference = rig.reopen(directory, torch.float32)
    rig.assert_close(rig.logits(model, IDS), rig.reference_logits(reference, IDS))
