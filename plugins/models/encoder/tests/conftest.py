"""A rig for encoder tests: tiny checkpoints of transformers, and our model on them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield.hookspecs import LoadReport, Shard, Weight
from jackfield.layers.builder import TorchBuilder
from jackfield.testing.dense_context import DenseContext
from jackfield.testing.tiny_encoders import write_encoder
from jackfield.testing.tiny_models import weights_of
from jackfield_models_encoder.model import Bert
from jackfield_models_encoder.shape import describe
from jackfield_ops_torch.ops import TorchOps


class Rig:
    """Builds and runs models."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def checkpoint(self, architecture: str, **entries: Any) -> tuple[Any, dict[str, Any]]:
        """transformers' model, and the config that it saved."""
        reference = write_encoder(self._folder, architecture, **entries)
        return reference, dict(json.loads((self._folder / "config.json").read_text()))

    def build(self, config: Mapping[str, Any], weights: Sequence[Weight]) -> tuple[Bert, LoadReport]:
        build = TorchBuilder(
            shape=describe(config, Shard()), shard=Shard(), ops=TorchOps(), device="cpu", dtype="float32"
        )
        model = Bert(config, build)
        return model, model.load(iter(weights))

    def model(self, config: Mapping[str, Any], reference: Any) -> Bert:
        made, report = self.build(config, list(weights_of(reference)))
        assert report.ok, report.problems()
        return made

    def run(
        self, model: Bert, texts: Sequence[Sequence[int]], types: Sequence[int] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states [total, d] and what is pooled [texts, width] of several texts in one forward."""
        context = DenseContext(TorchOps())
        context.step([(i, len(ids)) for i, ids in enumerate(texts)])
        context.token_types = None if types is None else torch.tensor(list(types))
        starts = torch.tensor([0, *(len(ids) for ids in texts)]).cumsum(0)
        with torch.inference_mode():
            hidden = model.forward(torch.tensor([token for ids in texts for token in ids]), context)
            return hidden, model.pool(hidden, starts, context)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)
