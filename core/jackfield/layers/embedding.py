"""Token embedding, split over the vocabulary."""

from __future__ import annotations

from typing import Any

import torch

from jackfield.hookspecs import ForwardContext, Shard, Weight
from jackfield.layers.shards import vocab_share
from jackfield.layers.weight_reader import copy_rows


class VocabEmbedding:
    """Implements `Embedding`. The table is kept decoded, [this rank's ids, hidden], in the run's dtype, unless the operators look
    up rows in a tied head's packed weight.

    table    None until either is there
    """

    table: Any = None

    def __init__(
        self,
        name: str,
        vocab_size: int,
        hidden_size: int,
        *,
        shard: Shard,
        device: str,
        dtype: torch.dtype,
        scale: float = 1.0,
    ) -> None:
        self.name = name
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.shard = shard
        self.span = vocab_share(vocab_size, shard)
        self.device = device
        self.dtype = dtype
        # A factor of the lookup, not of the table: a tied head needs the table as it is.
        self.scale = None if scale == 1.0 else torch.tensor(scale, device=device, dtype=dtype)

    def accept(self, weight: Weight) -> None:
        """Decode this rank's part, unless there is something to look up in already."""
        if self.table is None:
            table = torch.empty(self.span[1] - self.span[0], self.hidden_size, device=self.device, dtype=self.dtype)
            copy_rows(table, weight, self.span)
            self.table = table

    def look_up_in(self, packed: Any) -> None:
        """A packed weight [this rank's ids, hidden] for which `Ops.looks_up` is true."""
        self.table = packed

    def __call__(self, ids: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        """int64 [n] -> [n, hidden]."""
        found = self._look_up(ids, ctx)
        return found if self.scale is None else found * self.scale

    def _look_up(self, ids: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        if self.shard.tp_size == 1:
            return ctx.ops.embedding(ids, self.table)
        first, last = self.span
        mine = (ids >= first) & (ids < last)
        found = torch.zeros(ids.shape[0], self.hidden_size, device=self.device, dtype=self.dtype)
        if last > first:
            looked_up = ctx.ops.embedding((ids - first).clamp(0, last - first - 1), self.table)
            found = torch.where(mine[:, None], looked_up, found)
        return ctx.all_reduce(found)
