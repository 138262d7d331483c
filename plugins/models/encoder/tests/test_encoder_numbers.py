"""Hidden states, labels and poolings equal to transformers', in float32, for each architecture and pooling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from jackfield.testing.tiny_encoders import hidden_states, label_logits
from jackfield_models_encoder.outputs import MODES
from jackfield_models_encoder.pooling import pool

TEXTS = [[int(i) for i in np.random.default_rng(n).integers(4, 60, size=n)] for n in (1, 2, 17, 40)]
MODELS = ("BertModel", "RobertaModel", "XLMRobertaModel")
CLASSIFIERS = (
    "BertForSequenceClassification",
    "RobertaForSequenceClassification",
    "XLMRobertaForSequenceClassification",
)


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("architecture", MODELS)
@pytest.mark.parametrize("entries", [{}, {"hidden_act": "relu"}, {"hidden_act": "gelu_new", "layer_norm_eps": 0.1}])
def test_hidden_states_of_mixed_lengths(rig: Any, architecture: str, entries: dict[str, Any]) -> None:
    reference, config = rig.checkpoint(architecture, **entries)
    hidden, _ = rig.run(rig.model(config, reference), TEXTS)
    for found, ids in zip(hidden.split([len(ids) for ids in TEXTS]), TEXTS, strict=True):
        close(found, hidden_states(reference, ids))


@pytest.mark.parametrize("architecture", CLASSIFIERS)
@pytest.mark.parametrize("labels", [1, 3])
def test_labels(rig: Any, architecture: str, labels: int) -> None:
    reference, config = rig.checkpoint(architecture, num_labels=labels)
    _, pooled = rig.run(rig.model(config, reference), TEXTS)
    assert pooled.dtype == torch.float32
    close(pooled, torch.stack([label_logits(reference, ids) for ids in TEXTS]))


def test_token_types(rig: Any) -> None:
    reference, config = rig.checkpoint("BertForSequenceClassification")
    types = [0] * 9 + [1] * 8
    _, pooled = rig.run(rig.model(config, reference), [TEXTS[2]], types)
    close(pooled[0], label_logits(reference, TEXTS[2], types))
    assert not torch.allclose(pooled[0], label_logits(reference, TEXTS[2]), atol=1e-3)


def by_hand(states: torch.Tensor, mode: str) -> torch.Tensor:
    n = len(states)
    weights = torch.arange(1, n + 1, dtype=torch.float32)[:, None]
    return {
        "cls": states[0],
        "max": states.max(dim=0).values,
        "mean": states.sum(dim=0) / n,
        "mean_sqrt_len": states.sum(dim=0) / n**0.5,
        "weightedmean": (states * weights).sum(dim=0) / weights.sum(),
        "lasttoken": states[-1],
    }[mode]


@pytest.mark.parametrize("modes", [*((mode,) for mode in MODES), ("cls", "max", "mean"), MODES])
def test_poolings_alone_and_one_behind_the_other(modes: tuple[str, ...]) -> None:
    states = [torch.randn(n, 6, generator=torch.Generator().manual_seed(n)) for n in (1, 2, 7, 30)]
    starts = torch.tensor([0, 1, 3, 10, 40])
    found = pool(torch.cat(states), starts, modes)
    close(found, torch.stack([torch.cat([by_hand(one, mode) for mode in modes]) for one in states]))


def test_a_text_does_not_see_its_neighbours(rig: Any) -> None:
    reference, config = rig.checkpoint("BertModel", pooling={"pooling_mode_mean_tokens": True})
    model = rig.model(config, reference)
    _, together = rig.run(model, TEXTS)
    for ids, vector in zip(TEXTS, together, strict=True):
        close(rig.run(model, [ids])[1][0], vector)


def test_low_precision_is_as_close_as_transformers_is(rig: Any) -> None:
    from jackfield.hookspecs import Shard
    from jackfield.layers.builder import TorchBuilder
    from jackfield.testing.tiny_models import weights_of
    from jackfield_models_encoder.model import Bert
    from jackfield_models_encoder.shape import describe
    from jackfield_ops_torch.ops import TorchOps

    reference, config = rig.checkpoint("BertModel", scale=0.1)
    exact = hidden_states(reference, TEXTS[3])
    weights = list(weights_of(reference))
    theirs = hidden_states(reference.to(torch.bfloat16), TEXTS[3])
    build = TorchBuilder(shape=describe(config, Shard()), shard=Shard(), ops=TorchOps(), device="cpu", dtype="bfloat16")
    model = Bert(config, build)
    assert model.load(iter(weights)).ok
    ours, _ = rig.run(model, [TEXTS[3]])
    assert (ours.float() - exact).norm() <= 1.3 * (theirs - exact).norm()
