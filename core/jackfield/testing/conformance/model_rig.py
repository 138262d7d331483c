"""How the model suite makes models: tiny configs, operators of an installed plugin, dense attention over sequences."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, cast

import torch

from jackfield.hookspecs import LoadReport, Model, ModelEntry, ModelShape, Ops, Shard, UnsupportedModel, Weight
from jackfield.layers.builder import TorchBuilder
from jackfield.stack.discovery.catalogue import PluginRow, Status
from jackfield.stack.discovery.scan import discover
from jackfield.stack.loading.implementations import named_arguments
from jackfield.stack.loading.load import INLINE, LoadedStack, load_stack
from jackfield.stack.resolved import ResolvedStack
from jackfield.stack.selection.choice import priority
from jackfield.stack.selection.single import select_one
from jackfield.testing.conformance.device import ComputingConformance, usable
from jackfield.testing.dense_context import DenseContext
from jackfield.testing.tiny_models import tiny_config, weights_of

TOLERANCE = 1e-4
"""Of float32 logits, as a share of the largest at the position: some thousand additions in another order."""


Pieces = Sequence[Sequence[tuple[int, int]]]
"""(sequence, new tokens) of each forward."""


class ModelRig(ComputingConformance):
    """Set `ops` to the operators to run with (none: those with the highest priority), and override `config` if an
    architecture's default config cannot be made tiny by the entries of `jackfield.testing.tiny_models.TINY`."""

    kind = "model"
    ops: ClassVar[str] = ""
    tp_sizes: ClassVar[tuple[int, ...]] = (2, 4)
    entries_over: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def config(self, architecture: str) -> Mapping[str, Any]:
        """Entries to lay over the tiny default config of an architecture."""
        return self.entries_over

    @classmethod
    def entries(cls) -> Mapping[str, ModelEntry]:
        """Architecture -> where its code is."""
        return cls.stack().models()

    @property
    def provider(self) -> Ops:
        """The operators of an installed plugin, in float32 and for one rank."""
        return self.operators()

    @cached_property
    def _operators(self) -> dict[tuple[str, int], Ops]:
        return {}

    @cached_property
    def _operators_of(self) -> dict[int, tuple[Model, Ops]]:
        """By the identity of the model, which is kept here so that it stays one model's."""
        return {}

    def operators(self, dtype: str = "float32", tp_size: int = 1) -> Ops:
        """The operators of an installed plugin, for a run of this dtype and number of ranks."""
        made = self._operators.get((dtype, tp_size))
        if made is None:
            fields: dict[str, Any] = {"device": self.here(), "dtype": dtype, "layout": "nhd-paged", "tp_size": tp_size}
            made = self._operators[dtype, tp_size] = self._operator_stack(dtype).make("ops", **fields)
        return made

    def operators_of(self, model: Model) -> Ops:
        """Those with which `build` made the model."""
        return self._operators_of[id(model)][1]

    def _operator_stack(self, dtype: str) -> LoadedStack:
        rows: list[PluginRow] = [row for row in discover().rows("ops") if row.status is Status.OK]
        rows = [row for row in rows if usable(row, self.here(), dtype)]
        names = [self.ops] if self.ops else [row.name for row in sorted(rows, key=priority, reverse=True)]
        if not names:
            self.cannot_run("a model needs operators, and no plugin of kind ops that can serve is installed")
        return load_stack(ResolvedStack(plugins=(select_one(discover(), "ops", names[0], {}),)), INLINE)

    def tiny(self, architecture: str, **entries: Any) -> dict[str, Any]:
        if importlib.util.find_spec("transformers") is None:
            self.cannot_run("transformers, the reference, cannot be imported: pip install transformers")
        self.here()
        return tiny_config(architecture, {**self.config(architecture), **entries})

    def describe(self, architecture: str, config: Mapping[str, Any], shard: Shard | None = None) -> ModelShape:
        shape: ModelShape = described_shape(self.entries()[architecture], config, shard or Shard())
        return shape

    def build(
        self,
        architecture: str,
        config: Mapping[str, Any],
        weights: Iterable[Weight],
        *,
        shard: Shard | None = None,
        dtype: str = "float32",
    ) -> tuple[Model, LoadReport]:
        shard = shard or Shard()
        shape = self.describe(architecture, config, shard)
        ops = self.operators(dtype, shard.tp_size)
        build = TorchBuilder(shape=shape, shard=shard, ops=ops, device=self.here(), dtype=dtype)
        model: Model = resolve(self.entries()[architecture].model)(config, build)
        self._operators_of[id(model)] = (model, ops)
        return model, model.load(iter(weights))

    def loaded_model(self, architecture: str, config: Mapping[str, Any], reference: Any, **how: Any) -> Model:
        model, report = self.build(architecture, config, weights_of(reference), **how)
        assert report.ok, f"{architecture} does not load its own checkpoint: {'; '.join(report.problems())}"
        return model

    def logits(
        self, model: Model, sequences: Sequence[list[int]], pieces: Pieces, *, context: DenseContext | None = None
    ) -> list[torch.Tensor]:
        """pieces: (sequence, new tokens) of each forward. float32 [length, vocab] of each sequence; of a model without logits its
        hidden states [length, hidden]."""
        context = context or DenseContext(self.operators_of(model))
        done = [0] * len(sequences)
        found: list[list[torch.Tensor]] = [[] for _ in sequences]
        for piece in pieces:
            ids: list[int] = []
            for sequence, new in piece:
                ids += sequences[sequence][done[sequence] : done[sequence] + new]
                done[sequence] += new
            context.step(piece)
            with torch.inference_mode():
                hidden = model.forward(torch.tensor(ids), context)
                logits = model.logits(hidden, context) if has_logits(model) else hidden.float()
            assert logits.dtype == torch.float32, f"logits are {logits.dtype}, not float32"
            parts = torch.split(logits, [new for _, new in piece])
            for (sequence, _), part in zip(piece, parts, strict=True):
                found[sequence].append(part)
        return [torch.cat(parts) for parts in found]

    def whole(self, model: Model, ids: list[int], **how: Any) -> torch.Tensor:
        return self.logits(model, [ids], [[(0, len(ids))]], **how)[0]

    def sizes(self, name: str, config: Mapping[str, Any]) -> list[int]:
        """The numbers of ranks among `tp_sizes` that can share the model."""
        found = []
        for size in self.tp_sizes:
            try:
                self.describe(name, config, Shard(tp_size=size))
            except UnsupportedModel:
                continue
            found.append(size)
        return found


def has_logits(model: Model) -> bool:
    return type(model).logits is not Model.logits


def described_shape(entry: ModelEntry, config: Mapping[str, Any], shard: Shard) -> ModelShape:
    describe = resolve(entry.shape)
    return cast(ModelShape, describe(**named_arguments(describe, {"config": dict(config), "shard": shard})))


def resolve(reference: str) -> Any:
    module, _, attribute = reference.partition(":")
    return cast(Any, getattr(importlib.import_module(module), attribute))


def close(found: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    assert found.shape == wanted.shape, f"{what}: logits {tuple(found.shape)}, not {tuple(wanted.shape)}"
    error = (found - wanted).abs().amax(-1) / wanted.abs().amax(-1)
    worst = int(error.nan_to_num(torch.inf).argmax())
    assert float(error[worst]) <= TOLERANCE, f"{what}: off by {float(error[worst]):.1e} at position {worst}"
