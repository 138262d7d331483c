"""Logits equal to transformers' at every position, in float32, over what a Qwen config may say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from jackfield.hookspecs import Model, Shard
from jackfield.testing.conformance import ModelConformance
from jackfield.testing.conformance.model import IDS
from jackfield.testing.conformance.model_rig import close
from jackfield.testing.dense_context import DenseContext, Ranks
from jackfield.testing.tiny_models import reference_logits, reference_model, weights_of

BOTH = ("Qwen2ForCausalLM", "Qwen3ForCausalLM")
WINDOW = {"use_sliding_window": True, "sliding_window": 7}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}

VARIANTS: dict[str, dict[str, Any]] = {
    "windows-from-layer-1": {**WINDOW, "max_window_layers": 1},
    "windows-everywhere": {**WINDOW, "max_window_layers": 0},
    "windows-nowhere": WINDOW,
    "windows-listed": {**WINDOW, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "window-not-used": {"use_sliding_window": False, "sliding_window": 7, "max_window_layers": 0},
    "window-with-yarn": {**WINDOW, "max_window_layers": 1, "rope_parameters": YARN},
    "wide-heads": {"head_dim": 24},
    "narrow-heads": {"head_dim": 8, "num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "kv-heads-null": {"num_key_value_heads": None},
}


class TestQwen(ModelConformance):
    """The suite, and what its own variations leave out."""

    plugin = "qwen"

    @pytest.mark.parametrize("architecture", BOTH)
    @pytest.mark.parametrize("name", VARIANTS)
    def test_variants(self, architecture: str, name: str) -> None:
        config = self.tiny(architecture, **VARIANTS[name])
        if "layer_types" not in VARIANTS[name]:
            del config["layer_types"]  # transformers writes it; published configs say it by max_window_layers
        reference = reference_model(architecture, config)
        model = self.loaded_model(architecture, config, reference)
        close(self.whole(model, IDS), reference_logits(reference, IDS), f"{architecture} {name}")

    def test_ranks_share_key_value_heads_biases_and_head_norms(self) -> None:
        """Eight heads and two KV heads on four ranks: two ranks hold the same KV head and its part of the biases."""
        for architecture in BOTH:
            config = self.tiny(architecture, num_attention_heads=8, head_dim=12)
            reference = reference_model(architecture, config)
            shards = [Shard(tp_rank=rank, tp_size=4) for rank in range(4)]
            models = [self.loaded_model(architecture, config, reference, shard=shard) for shard in shards]
            ranks = Ranks(4)

            def work(rank: int, models: list[Model] = models, ranks: Ranks = ranks) -> torch.Tensor:
                return self.whole(
                    models[rank],
                    IDS[:20],
                    context=DenseContext(self.operators_of(models[rank]), ranks=ranks, rank=rank),
                )

            wanted = reference_logits(reference, IDS[:20])
            for rank, logits in enumerate(ranks.run(work)):
                close(logits, wanted, f"{architecture}, rank {rank}")

    def test_a_checkpoint_without_its_biases_or_norms_is_told(self) -> None:
        for architecture, part, count in ((BOTH[0], ".bias", 9), (BOTH[1], "k_norm.weight", 3)):
            config = self.tiny(architecture)
            given = [one for one in weights_of(reference_model(architecture, config)) if not one.name.endswith(part)]
            _, report = self.build(architecture, config, given)
            assert len(report.missing) == count
            assert all(name.endswith(part) for name in report.missing)
