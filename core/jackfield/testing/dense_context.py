"""A `ForwardContext` for tests of models: dense attention over whole sequences in the open, and ranks as threads.

It knows no pages, batches or plans: each layer keeps the keys and values of each sequence in one tensor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from jackfield.hookspecs import AttentionLayer, KVWrite, LayerBlocks, Ops, PostAttention, PreAttention
from jackfield.layers.one_by_one import layers_one_by_one


class Ranks:
    """Tensor-parallel ranks in one process: each runs in a thread and meets the others in `all_reduce`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size)
        self._given: dict[int, torch.Tensor] = {}

    def all_reduce(self, rank: int, x: torch.Tensor) -> torch.Tensor:
        """The sum of what all ranks give, added in the order of the ranks."""
        self._given[rank] = x
        self._barrier.wait()
        total = torch.stack([self._given[other] for other in range(self.size)]).sum(dim=0)
        self._barrier.wait()
        return total

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        """`work(rank)` on all ranks at once; the first failure of a rank ends them all."""

        def guarded(rank: int) -> Any:
            try:
                return work(rank)
            except BaseException:
                self._barrier.abort()
                raise

        with ThreadPoolExecutor(self.size) as pool:
            futures = [pool.submit(guarded, rank) for rank in range(self.size)]
        failed = [error for future in futures if (error := future.exception()) is not None]
        for error in failed:
            if not isinstance(error, threading.BrokenBarrierError):
                raise error
        if failed:
            raise failed[0]
        return [future.result() for future in futures]


class DenseContext:
    """Sequences that advance by `step`; `attend` looks at all that a sequence had before."""

    def __init__(self, ops: Ops, *, ranks: Ranks | None = None, rank: int = 0) -> None:
        self.ops = ops
        self.positions = torch.empty(0, dtype=torch.int64)
        self.token_types: torch.Tensor | None = None
        self._ranks = ranks
        self._rank = rank
        self._done: dict[int, int] = {}
        self._spans: list[tuple[int, int]] = []
        self._kv: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}

    def step(self, advances: Sequence[tuple[int, int]]) -> None:
        """The next forward has `new` tokens of each (sequence, new), one sequence behind the other."""
        self._spans = list(advances)
        starts = [self._done.get(sequence, 0) for sequence, _ in advances]
        self.positions = torch.cat(
            [torch.arange(start, start + new) for start, (_, new) in zip(starts, advances, strict=True)]
        )
        self._done |= {sequence: start + new for start, (sequence, new) in zip(starts, advances, strict=True)}

    def layers(self, layers: Sequence[LayerBlocks], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return layers_one_by_one(layers, x, self)

    def attend(
        self, layer: AttentionLayer, q: torch.Tensor, k: torch.Tensor | None, v: torch.Tensor | None
    ) -> torch.Tensor:
        out, at = [], 0
        for sequence, new in self._spans:
            here = slice(at, at + new)
            if k is not None and v is not None:
                self._append((layer.id, sequence), k[here], v[here])
            source = layer.id if layer.kv_source is None else layer.kv_source
            keys, values = self._kv[source, sequence]
            out.append(_attention(layer, q[here], keys, values))
            at += new
        return torch.cat(out)

    def kv_write(self, layer: AttentionLayer) -> KVWrite | None:
        return None  # it has no slots

    def pre_attention(
        self, block: PreAttention, x: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor]:
        return self.ops.pre_attention(block, x, residual, self)

    def post_attention(
        self, block: PostAttention, attended: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.ops.post_attention(block, attended, residual, self)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return x if self._ranks is None else self._ranks.all_reduce(self._rank, x)

    def _append(self, key: tuple[int, int], k: torch.Tensor, v: torch.Tensor) -> None:
        if key in self._kv:
            k, v = torch.cat((self._kv[key][0], k)), torch.cat((self._kv[key][1], v))
        self._kv[key] = (k, v)


def _attention(layer: AttentionLayer, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """q [new, heads, head], k and v [length, kv_heads, size] -> [new, heads * v_head]."""
    share = layer.num_heads // layer.num_kv_heads
    k, v = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()) * layer.scale
    if layer.soft_cap is not None:
        scores = layer.soft_cap * torch.tanh(scores / layer.soft_cap)
    key, query = torch.arange(len(k)), torch.arange(len(k) - len(q), len(k))[:, None]
    hidden = key > query if layer.causal else torch.zeros_like(key > query)
    if layer.window is not None:
        hidden = hidden | (key <= query - layer.window)
    probs = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", probs, v.float()).to(q.dtype).flatten(1)
