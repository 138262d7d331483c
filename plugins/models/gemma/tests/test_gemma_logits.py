"""Logits equal to transformers' at every position, over what Gemma 3 configs vary, in float32; and what is refused."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from jackfield.hookspecs import Shard, UnsupportedModel
from jackfield.testing.conformance import ModelConformance
from jackfield.testing.conformance.model_rig import close
from jackfield.testing.tiny_models import reference_logits, reference_model
from jackfield_models_gemma.rope import read_ropes
from jackfield_models_gemma.settings import read_settings
from jackfield_models_gemma.shape import describe

NAME = "Gemma3ForCausalLM"
IDS = [(7 * i * i + 3) % 97 for i in range(60)]
FULL = {"rope_type": "default", "rope_theta": 1e6}
LOCAL = {"rope_type": "default", "rope_theta": 1e4}

VARIANTS: dict[str, dict[str, Any]] = {
    "pattern of six": {"num_hidden_layers": 7, "layer_types": None, "sliding_window": 5},
    "all full": {"layer_types": ["full_attention"] * 3},
    "window longer than the context": {"sliding_window": 500},
    "bases": {"rope_parameters": {"full_attention": {**FULL, "rope_theta": 50.0}, "sliding_attention": LOCAL}},
    "linear": {
        "rope_parameters": {
            "full_attention": {**FULL, "rope_type": "linear", "factor": 8.0},
            "sliding_attention": LOCAL,
        }
    },
    "yarn": {
        "rope_parameters": {
            "full_attention": {
                **FULL,
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            },
            "sliding_attention": LOCAL,
        }
    },
    "heads wider than the hidden size": {"head_dim": 40, "query_pre_attn_scalar": 24},
    "capped logits": {"final_logit_softcapping": 2.0},
}


class TestGemma3(ModelConformance):
    """The suite over both kinds of layers, and what is Gemma's own."""

    plugin = "gemma3"
    entries_over = MappingProxyType(
        {
            "sliding_window": 9,
            "query_pre_attn_scalar": 24,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        }
    )

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_logits_equal_transformers(self, variant: str) -> None:
        config = self.tiny(NAME, **VARIANTS[variant])
        reference = reference_model(NAME, config)
        found = self.whole(self.loaded_model(NAME, config, reference), IDS)
        close(found, reference_logits(reference, IDS), variant)

    def test_the_old_layout_gives_the_same_model(self) -> None:
        """rope_theta, rope_scaling, rope_local_base_freq and sliding_window_pattern, as the first releases wrote them."""
        rope = {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
        }
        kinds = ["sliding_attention", "full_attention", "sliding_attention"]
        config = self.tiny(NAME, rope_parameters=rope, layer_types=kinds)
        reference = reference_model(NAME, config)
        old = {key: value for key, value in config.items() if key not in ("rope_parameters", "layer_types", "dtype")}
        old |= {
            "rope_theta": 5e5,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "rope_local_base_freq": 300.0,
            "sliding_window_pattern": 2,
            "torch_dtype": "float32",
        }
        found = self.whole(self.loaded_model(NAME, old, reference), IDS)
        close(found, reference_logits(reference, IDS), "the old layout")

    def test_groups(self) -> None:
        """Window layers and full layers keep their KV apart; one KV head is shared by all ranks."""
        config = self.tiny(NAME, num_key_value_heads=1)
        shape = describe(config, Shard(tp_rank=1, tp_size=2))
        assert {group.name: (group.layers, group.window) for group in shape.groups} == {
            "full": ((1,), None),
            "window": ((0, 2), 9),
        }
        assert {layer.num_kv_heads for layer in shape.layers} == {1}
        assert {layer.scale for layer in shape.layers} == {24**-0.5}
        with pytest.raises(UnsupportedModel, match="sizes that can: 1, 2, 4"):
            describe(config, Shard(tp_size=3))

    def test_without_bases_those_of_transformers_hold(self) -> None:
        config = {key: value for key, value in self.tiny(NAME).items() if key != "rope_parameters"}
        ropes = read_ropes(config, read_settings(config))
        found = {kind: entries["rope_parameters"]["rope_theta"] for kind, entries in ropes.items()}
        assert found == {"full_attention": 1e6, "sliding_attention": 1e4}

    @pytest.mark.parametrize(
        ("entry", "value"),
        [
            ("attn_logit_softcapping", 2.0),
            ("use_bidirectional_attention", True),
            ("sliding_window", None),
            ("layer_types", ["full_attention"]),
            ("layer_types", ["full_attention", "chunked_attention", "full_attention"]),
            ("rope_parameters", {"rope_type": "default"}),
            ("rope_parameters", {"full_attention": {"rope_type": "dynamic", "factor": 2.0}}),
            ("rope_parameters", {"full_attention": 3}),
            ("rope_scaling", 8),
            ("num_hidden_layers", 10**9),
            ("final_logit_softcapping", 0.0),
        ],
    )
    def test_what_is_not_done_is_refused(self, entry: str, value: Any) -> None:
        config = {**self.tiny(NAME), entry: value}
        with pytest.raises(UnsupportedModel, match=entry if not isinstance(value, dict) else "rope_"):
            describe(config, Shard())
