"""Linear weights as they come in: parts of one fused matrix, cut to this rank, kept packed where operators allow it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jackfield.hookspecs import DenseWeight, ForwardContext, Ops, Weight
from jackfield.layers.shards import Span
from jackfield.layers.weight_reader import columns_are_whole, copy_rows, packed_rows


@dataclass(frozen=True, kw_only=True)
class LinearPart:
    """One checkpoint matrix inside a fused one.

    name            checkpoint name
    shape           (out, in) in the checkpoint
    rows, columns   this rank's part of it
    """

    name: str
    shape: tuple[int, int]
    rows: Span
    columns: Span

    @property
    def num_rows(self) -> int:
        return self.rows[1] - self.rows[0]

    @property
    def num_columns(self) -> int:
        return self.columns[1] - self.columns[0]


class FusedLinear:
    """Collects the parts of one linear layer and hands the whole to `Ops.pack` as soon as the last has come.

    Until then it holds the parts' records, which are views of a mapped file, so that nothing is copied twice. Parts stay
    packed only if all have one encoding which the operators take and no shard cuts a block.
    """

    def __init__(
        self,
        parts: Sequence[LinearPart],
        *,
        ops: Ops,
        encodings: Collection[str],
        device: str,
        dtype: torch.dtype,
        install: Callable[[Any], None],
    ) -> None:
        self.parts = tuple(parts)
        self.ops = ops
        self.encodings = frozenset(encodings)
        self.device = device
        self.dtype = dtype
        self.install = install
        self.held: dict[str, Weight] = {}

    def accept(self, weight: Weight) -> None:
        """Take one part, already checked against its shape."""
        self.held[weight.name] = weight
        if len(self.held) == len(self.parts):
            self.install(self.ops.pack(self._build()))
            self.held.clear()

    def _build(self) -> DenseWeight:
        encoding = self._common_encoding()
        if encoding == "plain":
            data = torch.empty(
                sum(part.num_rows for part in self.parts),
                self.parts[0].num_columns,
                dtype=self.dtype,
                device=self.device,
            )
            for part, target in zip(self.parts, torch.split(data, [part.num_rows for part in self.parts]), strict=True):
                copy_rows(target, self.held[part.name], part.rows, part.columns)
        else:
            data = torch.cat(
                [packed_rows(self.held[part.name], part.rows, part.columns, self.device) for part in self.parts]
            )
        return DenseWeight(
            encoding=encoding, out_features=data.shape[0], in_features=self.parts[0].num_columns, data=data
        )

    def _common_encoding(self) -> str:
        encodings = {weight.encoding for weight in self.held.values()}
        if len(encodings) > 1:
            return "plain"
        (encoding,) = encodings
        if encoding == "plain" or encoding not in self.encodings:
            return "plain"
        whole = all(columns_are_whole(encoding, part.columns) for part in self.parts)
        return encoding if whole else "plain"


class PlainLinear:
    """Implements `Linear`: a whole matrix on every rank, through the operators. Both are set while the model is built."""

    packed: Any = None
    bias: torch.Tensor | None = None

    def install(self, packed: Any) -> None:
        self.packed = packed

    def __call__(self, x: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        """[n, in] -> [n, out]."""
        return ctx.ops.linear(x, self.packed, self.bias)
