"""How many keys one split has, found on the device: host lengths may be upper bounds, and a graph has none at all."""

from __future__ import annotations

import triton
import triton.language as tl

from jackfield_attention_triton.kernels.tiles import tile_of


@triton.jit(do_not_specialize=["num_tiles", "splits", "budget", "least"])
def split_length_kernel(
    found,
    q_starts,
    kv_lens,
    tiles,
    num_tiles,
    splits,
    budget,
    least,
    BLOCK_Q: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    TILED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """found int32 [1]: a multiple of BLOCK_N that cuts all tiles' keys into some `budget` pieces of at least `least`, and no
    tile into more than `splits`. One program."""
    lane = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.int64)
    longest = tl.zeros([BLOCK], tl.int32)
    for at in range(0, num_tiles, BLOCK):
        tile = at + lane
        _, _, _, _, _, low, high = tile_of(
            tl.minimum(tile, num_tiles - 1), q_starts, kv_lens, tiles, BLOCK_Q, WINDOW, CAUSAL, TILED
        )
        span = tl.where(tile < num_tiles, high - low, 0)
        total += span.to(tl.int64)
        longest = tl.maximum(longest, span)
    length = (tl.sum(total, 0) + budget - 1) // budget
    length = tl.maximum(length, least)
    length = tl.maximum(length, (tl.max(longest, 0) + splits - 1) // splits)
    length = (length + BLOCK_N - 1) // BLOCK_N * BLOCK_N
    tl.store(found, length.to(tl.int32))
