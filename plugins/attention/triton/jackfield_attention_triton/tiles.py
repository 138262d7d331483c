"""The tiles of a launch on the host: which rows it serves, and an upper bound of the keys that each tile sees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jackfield_attention_triton.layers import LayerKind


@dataclass(frozen=True, kw_only=True)
class HostTiles:
    """items, first  int64 [n]: index in the batch, and the tile's first query among the row's new tokens
    every   tile i is item i from its first token on: the device need not be told
    """

    items: NDArray[np.int64]
    first: NDArray[np.int64]
    every: bool

    def table(self) -> NDArray[np.int32]:
        """[n, 2], as the kernels read it."""
        return np.stack([self.items, self.first], axis=1).astype(np.int32)


def decode_tiles(q_lens: NDArray[np.int32]) -> HostTiles:
    """One tile for each row of one new token."""
    items = np.flatnonzero(q_lens == 1)
    return HostTiles(items=items, first=np.zeros_like(items), every=items.size == q_lens.size)


def extend_tiles(q_lens: NDArray[np.int32], kv_lens: NDArray[np.int32], queries: int) -> HostTiles:
    """Tiles of `queries` new tokens for each longer row. Those with the most keys come first, so that none is left at the end
    on a GPU that is idle otherwise."""
    rows = np.flatnonzero(q_lens > 1)
    counts = -(-q_lens[rows].astype(np.int64) // queries)
    items = np.repeat(rows, counts)
    first = (np.arange(items.size) - np.repeat(np.cumsum(counts) - counts, counts)) * queries
    order = np.argsort(-(kv_lens[items] - q_lens[items] + first), kind="stable")
    return HostTiles(items=items[order], first=first[order], every=False)


def spans(
    tiles: HostTiles, q_lens: NDArray[np.int32], kv_lens: NDArray[np.int32], queries: int, kind: LayerKind, causal: bool
) -> NDArray[np.int64]:
    """Keys that each tile sees, int64 [n], where kv_lens are the rows' true lengths; an upper bound where they are one."""
    kv = kv_lens[tiles.items].astype(np.int64)
    begin = kv - q_lens[tiles.items] + tiles.first
    high = np.minimum(begin + queries, kv) if causal else kv
    return high - np.maximum(begin - kind.window + 1, 0) if kind.window else high
