"""Operator providers with one fault each in how they write keys and values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from jackfield.hookspecs import KVWrite
from tests.conformance.ops_faults import PlainOps, cast


class WritesUnasked(PlainOps):
    """Keeps keys and values to itself where nobody said where they go."""

    def pre_attention(self, block: Any, x: Any, residual: Any, ctx: Any) -> Any:
        q, _, _, total = super().pre_attention(block, x, residual, ctx)
        return q, None, None, total


class WritesToTheNextSlot(PlainOps):
    def write(self, write: KVWrite, k: torch.Tensor, v: torch.Tensor) -> None:
        super().write(replace(write, slots=write.slots + 1), k, v)


class WritesAllInTokenOrder(PlainOps):
    """Takes one of the layouts for the other, which pages of one token hide."""

    def write(self, write: KVWrite, k: torch.Tensor, v: torch.Tensor) -> None:
        for pages, new in ((write.k, k), (write.v, v)):
            pages.view(-1, *new.shape[1:])[write.slots] = cast(new, pages.dtype)


class WritesBeforeTheTurn(PlainOps):
    def pre_attention(self, block: Any, x: Any, residual: Any, ctx: Any) -> Any:
        found = super().pre_attention(block, x, residual, ctx)
        if (write := ctx.kv_write(block.layer)) is not None:
            self.write(write, *self.before(replace(block, rotary=None), x, residual, ctx)[1:3])
        return found

    def rotate(self, x: torch.Tensor, rotary: Any, positions: torch.Tensor) -> torch.Tensor:
        return x if rotary is None else super().rotate(x, rotary, positions)


class WritesWhereItWroteFirst(PlainOps):
    def write(self, write: KVWrite, k: torch.Tensor, v: torch.Tensor) -> None:
        first = vars(self).setdefault("first", write.slots)
        super().write(replace(write, slots=torch.cat((first, write.slots[len(first) :]))[: len(k)]), k, v)


class ForgetsTheValues(PlainOps):
    def write(self, write: KVWrite, k: torch.Tensor, v: torch.Tensor) -> None:
        super().write(replace(write, v=write.v.clone()), k, v)


class CastsToNaN(PlainOps):
    """What torch makes of a number beyond the range of eight bits."""

    def write(self, write: KVWrite, k: torch.Tensor, v: torch.Tensor) -> None:
        super().write(write, k, torch.where(v.abs() > torch.finfo(write.v.dtype).max, torch.nan, v))


KV_FAULTS: dict[type[PlainOps], str] = {
    WritesUnasked: "test_pre_attention",
    WritesToTheNextSlot: "test_kv_write",
    WritesAllInTokenOrder: "test_kv_write",
    WritesBeforeTheTurn: "test_kv_write",
    WritesWhereItWroteFirst: "test_kv_write",
    ForgetsTheValues: "test_kv_write",
    CastsToNaN: "test_kv_write",
}
