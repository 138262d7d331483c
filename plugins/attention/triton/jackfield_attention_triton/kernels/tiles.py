"""Which rows, queries and keys one tile has: queries of one row, side by side, and the span of keys that any of them sees."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_of(
    tile,
    q_starts,
    kv_lens,
    tiles,
    BLOCK_Q: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    TILED: tl.constexpr,
):
    """(item, start, q_len, kv_len, first, low, high), int32 as `tile`, a scalar or a block.

    item    index in the batch; its new tokens are q_starts[item] = start and the q_len - 1 after it
    first   the tile's first query among them; the tile has BLOCK_Q, or what is left of the row
    low, high   positions of the first key that a query of the tile sees, and of the one behind the last
    TILED   tiles int32 [n, 2] has (item, first) of each; else tile i is item i from its first token on
    """
    if TILED:
        item = tl.load(tiles + tile * 2)
        first = tl.load(tiles + tile * 2 + 1)
    else:
        item = tile
        first = tile * 0
    start = tl.load(q_starts + item)
    q_len = tl.load(q_starts + item + 1) - start
    kv_len = tl.load(kv_lens + item)
    begin = kv_len - q_len + first
    low = first * 0
    if WINDOW > 0:
        low = tl.maximum(begin - WINDOW + 1, 0)
    high = kv_len
    if CAUSAL:
        high = tl.minimum(begin + BLOCK_Q, kv_len)
    return item, start, q_len, kv_len, first, low, high
