"""The splits of a line put together."""

from __future__ import annotations

import triton
import triton.language as tl

from jackfield_attention_triton.kernels.tiles import tile_of


@triton.jit(do_not_specialize=["splits"])
def reduce_kernel(
    parts,
    marks,
    out,
    q_starts,
    kv_lens,
    tiles,
    split_length,
    splits,
    HEADS: tl.constexpr,
    V_HEAD_SIZE: tl.constexpr,
    V_BLOCK: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    SPLITS_BLOCK: tl.constexpr,
    PARTS_BLOCK: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    TILED: tl.constexpr,
):
    """Program (l, h): head h of line l, see `attend_kernel`. SPLITS_BLOCK >= splits, a multiple of PARTS_BLOCK."""
    line = tl.program_id(0)
    head = tl.program_id(1)
    tile = line // BLOCK_Q
    _, begin, q_len, _, first, low, high = tile_of(tile, q_starts, kv_lens, tiles, BLOCK_Q, WINDOW, CAUSAL, TILED)
    within = first + line % BLOCK_Q
    if within >= q_len:
        return
    length = tl.load(split_length)
    used = (high - low + length - 1) // length  # what lies behind was never written
    place = (line.to(tl.int64) * HEADS + head) * splits
    split = tl.arange(0, SPLITS_BLOCK)
    level = tl.max(tl.load(marks + (place + split) * 2, mask=split < used, other=-float("inf")), 0)
    v_size = tl.arange(0, V_BLOCK)
    weighed = tl.zeros([V_BLOCK], tl.float32)
    total = tl.zeros([PARTS_BLOCK], tl.float32)
    for at in range(0, used, PARTS_BLOCK):
        part = place + at + tl.arange(0, PARTS_BLOCK)
        held = at + tl.arange(0, PARTS_BLOCK) < used
        weight = tl.exp2(tl.load(marks + part * 2, mask=held, other=-float("inf")) - level)
        total += weight * tl.load(marks + part * 2 + 1, mask=held, other=0.0)
        found = tl.load(
            parts + (part * V_HEAD_SIZE)[:, None] + v_size[None, :],
            mask=held[:, None] & (v_size < V_HEAD_SIZE)[None, :],
            other=0.0,
        )
        weighed += tl.sum(weight[:, None] * found, 0)
    place = ((begin + within).to(tl.int64) * HEADS + head) * V_HEAD_SIZE
    found = weighed / tl.sum(total, 0)
    tl.store(out + place + v_size, found.to(out.dtype.element_ty), mask=v_size < V_HEAD_SIZE)
