"""Linear weights as they come in: parts of one fused matrix, cut to this rank, kept packed where operators allow it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from jackfield.hookspecs import DenseWeight, ForwardContext, Ops, Weight
from jackfield.layers.shards import Span
from jackfield.layers.weight_reader import BadWeight, columns_are_whole, copy_rows, packed_rows

UNPACK = "--quantization auto decodes it"


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

    def __str__(self) -> str:
        """The tensor and the part of it: "o.weight[0:576,0:576]"."""
        return f"{self.name}[{self.rows[0]}:{self.rows[1]},{self.columns[0]}:{self.columns[1]}]"

    @property
    def num_rows(self) -> int:
        return self.rows[1] - self.rows[0]

    @property
    def num_columns(self) -> int:
        return self.columns[1] - self.columns[0]


class Kept(Protocol):
    """Packed weights that outlive the run, by names that say which part of which tensors they are."""

    def take(self, name: str) -> Any | None:
        """A packed weight, or None."""
        ...

    def put(self, name: str, packed: Any) -> None:
        """Keep one that `take` did not have."""
        ...


@dataclass(frozen=True, kw_only=True)
class Packing:
    """What all linear layers of a model are packed with.

    encodings       in which `ops` gets weights; others are decoded to `dtype`
    device, dtype   of the run
    packed_only     a weight in a packed encoding that would have to be decoded is rejected
    kept            where packed weights come from and go to; None: they are always made
    """

    ops: Ops
    encodings: frozenset[str]
    device: str
    dtype: torch.dtype
    packed_only: bool = False
    kept: Kept | None = None

    def take(self, name: str) -> Any | None:
        """What is kept under a name, if anything."""
        return None if self.kept is None else self.kept.take(name)

    def put(self, name: str, packed: Any) -> None:
        """Keep it, if there is where."""
        if self.kept is not None:
            self.kept.put(name, packed)


class FusedLinear:
    """Collects the parts of one linear layer and hands the whole to `Ops.pack` as soon as the last has come.

    Until then it holds the parts' records, which are views of a mapped file, so that nothing is copied twice. Parts stay
    packed only if the operators take their encodings, alone or mixed, and no shard cuts a block.

    present    the whole was kept from an earlier run and is installed: no part needs to be read
    """

    def __init__(self, parts: Sequence[LinearPart], *, packing: Packing, install: Callable[[Any], None]) -> None:
        self.parts = tuple(parts)
        self.packing = packing
        self.install = install
        self.held: dict[str, Weight] = {}
        self.name = "+".join(str(part) for part in self.parts)
        kept = packing.take(self.name)
        self.present = kept is not None
        if kept is not None:
            install(kept)

    def accept(self, weight: Weight) -> None:
        """Take one part, already checked against its shape. Raises BadWeight for one that may not be decoded."""
        self.held[weight.name] = weight
        if len(self.held) == len(self.parts):
            try:
                packed = self._pack()
            except BadWeight as error:
                if error.row is None:
                    raise
                raise self._of_its_part(error, error.row) from error
            self.install(packed)
            self.held.clear()
            self.packing.put(self.name, packed)

    def _pack(self) -> Any:
        ops = self.packing.ops
        decode = [self._must_decode(part) for part in self.parts]
        if all(decode):
            return ops.pack(self._decoded())
        if any(decode):
            return ops.pack(self._decoded_together())
        packed = [self._as_it_is(part) for part in self.parts]
        if len({one.encoding for one in packed}) == 1:
            whole = packed[0].data if len(packed) == 1 else torch.cat([one.data for one in packed])
            return ops.pack(replace(packed[0], out_features=whole.shape[0], data=whole))
        mixed = ops.pack_mixed(packed)
        if mixed is not None:
            return mixed
        return ops.pack(self._decoded_together())

    def _of_its_part(self, error: BadWeight, row: int) -> BadWeight:
        """What the operators say of a row of the whole, said of the tensor that it comes from."""
        for part in self.parts:
            if row < part.num_rows:
                return BadWeight(error.why, name=part.name, row=part.rows[0] + row)
            row -= part.num_rows
        return error

    def _must_decode(self, part: LinearPart) -> bool:
        weight = self.held[part.name]
        if weight.encoding == "plain":
            return True
        why = None
        if weight.encoding not in self.packing.encodings:
            why = f"the ops plugin does not take {weight.encoding}"
        elif not columns_are_whole(weight.encoding, part.columns):
            why = f"this rank's columns {part.columns[0]} to {part.columns[1] - 1} cut blocks of {weight.encoding}"
        if why is not None and self.packing.packed_only:
            raise BadWeight(f"cannot stay packed: {why}: {UNPACK}", name=part.name)
        return why is not None

    def _as_it_is(self, part: LinearPart) -> DenseWeight:
        weight = self.held[part.name]
        data = packed_rows(weight, part.rows, part.columns, self.packing.device)
        return DenseWeight(
            encoding=weight.encoding, out_features=part.num_rows, in_features=part.num_columns, data=data
        )

    def _decoded_together(self) -> DenseWeight:
        """Parts of which some could have stayed packed alone."""
        if self.packing.packed_only:
            told = " and ".join(f"{name} in {one.encoding}" for name, one in self.held.items())
            raise BadWeight(f"{told} make one layer, which the ops plugin cannot pack together: {UNPACK}")
        return self._decoded()

    def _decoded(self) -> DenseWeight:
        rows = [part.num_rows for part in self.parts]
        columns = self.parts[0].num_columns
        data = torch.empty(sum(rows), columns, dtype=self.packing.dtype, device=self.packing.device)
        for part, target in zip(self.parts, torch.split(data, rows), strict=True):
            copy_rows(target, self.held[part.name], part.rows, part.columns)
        return DenseWeight(encoding="plain", out_features=data.shape[0], in_features=columns, data=data)


class PlainLinear:
    """Implements `Linear`: a whole matrix on every rank, through the operators. Both are set while the model is built."""

    packed: Any = None
    bias: torch.Tensor | None = None

    def install(self, packed: Any) -> None:
        self.packed = packed

    def __call__(self, x: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        """[n, in] -> [n, out]."""
        return ctx.ops.linear(x, self.packed, self.bias)
