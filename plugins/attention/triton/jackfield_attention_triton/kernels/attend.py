"""Attention of one tile of queries over one split of its keys, straight from the pages.

A tile's lines are its queries times the query heads that share a KV head, so that a key is loaded once for all of them.
The softmax is the running one, in float32 and powers of two.
"""

from __future__ import annotations

import triton
import triton.language as tl

from jackfield_attention_triton.kernels.numbers import tanh, widened
from jackfield_attention_triton.kernels.tiles import tile_of

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _accumulate(
    query,
    weighed,
    total,
    highest,
    start,
    stop,
    high,
    position,
    cached,
    among,
    table,
    keys,
    values,
    key_stride,
    value_stride,
    scale,
    HEAD_SIZE: tl.constexpr,
    V_HEAD_SIZE: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    V_BLOCK: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    TREE: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    FP8: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Keys start .. stop - 1 of the row, those from `high` on left out. Not MASKED: every line sees all of them."""
    size = tl.arange(0, HEAD_BLOCK)
    v_size = tl.arange(0, V_BLOCK)
    for at in range(start, stop, BLOCK_N):
        key = at + tl.arange(0, BLOCK_N)
        held = tl.full([BLOCK_N], True, tl.int1)
        if MASKED:
            held = key < high
        slot = tl.load(table + key, mask=held, other=0).to(tl.int64)
        k_held = held[None, :] & (size < HEAD_SIZE)[:, None]
        v_held = held[:, None] & (v_size < V_HEAD_SIZE)[None, :]
        k = tl.load(keys + slot[None, :] * key_stride + size[:, None], mask=k_held, other=0.0)
        k = widened(k, query.dtype, FP8)
        scores = tl.dot(query, k, input_precision="ieee")
        if SOFT_CAP > 0:
            scores = tanh(scores * (scale / SOFT_CAP)) * (SOFT_CAP * LOG2_E)
        else:
            scores = scores * (scale * LOG2_E)
        if MASKED:
            seen = held[None, :] & (position >= 0)[:, None]
            if TREE:
                new = key - cached  # among the row's new tokens
                listed = tl.load(among[:, None] + new[None, :], mask=seen & (new >= 0)[None, :], other=0) != 0
                seen = seen & ((new < 0)[None, :] | listed | (key[None, :] == position[:, None]))
            if CAUSAL:
                seen = seen & (key[None, :] <= position[:, None])
            if WINDOW > 0:
                seen = seen & (key[None, :] > position[:, None] - WINDOW)
            scores = tl.where(seen, scores, -float("inf"))
        top = tl.maximum(highest, tl.max(scores, 1))
        level = tl.where(top == -float("inf"), 0.0, top)  # a line that has seen no key yet: -inf - -inf is NaN
        weights = tl.exp2(scores - level[:, None])
        shrink = tl.exp2(highest - level)
        total = total * shrink + tl.sum(weights, 1)
        v = tl.load(values + slot[:, None] * value_stride + v_size[None, :], mask=v_held, other=0.0)
        v = widened(v, query.dtype, FP8)
        weighed = tl.dot(weights.to(query.dtype), v, weighed * shrink[:, None], input_precision="ieee")
        highest = top
    return weighed, total, highest


@triton.jit(do_not_specialize=["among_stride", "splits"])
def attend_kernel(
    q,
    keys,
    values,
    out,
    parts,
    marks,
    table,
    rows,
    q_starts,
    kv_lens,
    tiles,
    split_length,
    among,
    scale,
    q_stride,
    key_stride,
    value_stride,
    table_stride,
    among_stride,
    splits,
    SHARE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    V_HEAD_SIZE: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    V_BLOCK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_N: tl.constexpr,
    TILE_HEADS: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    TREE: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    FP8: tl.constexpr,
    TILED: tl.constexpr,
    SPLIT: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Program (p, s): tile p // G, whose G = KV_HEADS * cdiv(SHARE, TILE_HEADS) programs lie side by side; split s of it.

    q [tokens, heads, HEAD_SIZE], out [tokens, heads, V_HEAD_SIZE] dense; keys, values: slot s at s * stride, its KV heads
    dense; table int32 [rows, context]; among uint8 [tokens, most new tokens of a row]
    SPLIT   the result goes to parts float32 [lines, heads, splits, V_HEAD_SIZE] without its division, and to marks float32
            [lines, heads, splits, 2] the line's largest score (in powers of two) and its sum; lines = tiles * BLOCK_Q
    UPCAST  products in float32: for the interpreter, which computes wrongly in bfloat16
    """
    CHUNKS: tl.constexpr = (SHARE + TILE_HEADS - 1) // TILE_HEADS
    HEADS: tl.constexpr = KV_HEADS * SHARE
    program = tl.program_id(0)
    tile = program // (KV_HEADS * CHUNKS)
    kv_head = program % (KV_HEADS * CHUNKS) // CHUNKS
    chunk = program % CHUNKS
    item, begin, q_len, kv_len, first, low, high = tile_of(
        tile, q_starts, kv_lens, tiles, BLOCK_Q, WINDOW, CAUSAL, TILED
    )
    split = tl.program_id(1)
    if SPLIT:
        length = tl.load(split_length)
        low = low + split * length
        high = tl.minimum(high, low + length)
        if low >= high:
            return

    line = tl.arange(0, BLOCK_M)
    within = first + line // TILE_HEADS
    of_kv_head = chunk * TILE_HEADS + line % TILE_HEADS
    real = (line < BLOCK_Q * TILE_HEADS) & (within < q_len) & (of_kv_head < SHARE)
    head = kv_head * SHARE + of_kv_head
    token = (begin + within).to(tl.int64)
    cached = kv_len - q_len
    position = cached + within
    size = tl.arange(0, HEAD_BLOCK)
    query = tl.load(
        q + (token * q_stride + head * HEAD_SIZE)[:, None] + size[None, :],
        mask=real[:, None] & (size < HEAD_SIZE)[None, :],
        other=0,
    )
    if UPCAST:
        query = query.to(tl.float32)

    row = table + tl.load(rows + item).to(tl.int64) * table_stride
    head_keys = keys + kv_head * HEAD_SIZE
    head_values = values + kv_head * V_HEAD_SIZE
    others = among
    if TREE:
        others = among + tl.where(real, token, 0) * among_stride
    weighed = tl.zeros([BLOCK_M, V_BLOCK], tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    highest = tl.full([BLOCK_M], -float("inf"), tl.float32)
    plain = low
    if (
        BLOCK_Q > 1 and WINDOW == 0
    ):  # most keys of a long prefix are seen by every line: no masks for whole blocks of those
        everyone = high
        if CAUSAL:
            everyone = tl.minimum(high, cached + first + 1)
        if TREE:
            everyone = tl.minimum(high, cached)
        plain = low + tl.maximum(everyone - low, 0) // BLOCK_N * BLOCK_N
        weighed, total, highest = _accumulate(
            query, weighed, total, highest, low, plain, high, position, cached, others, row, head_keys, head_values,
            key_stride, value_stride, scale, HEAD_SIZE, V_HEAD_SIZE, HEAD_BLOCK, V_BLOCK, BLOCK_N, WINDOW, CAUSAL, TREE,
            SOFT_CAP, FP8, False,
        )  # fmt: skip
    weighed, total, highest = _accumulate(
        query, weighed, total, highest, plain, high, high, position, cached, others, row, head_keys, head_values,
        key_stride, value_stride, scale, HEAD_SIZE, V_HEAD_SIZE, HEAD_BLOCK, V_BLOCK, BLOCK_N, WINDOW, CAUSAL, TREE,
        SOFT_CAP, FP8, True,
    )  # fmt: skip

    v_size = tl.arange(0, V_BLOCK)
    filled = real[:, None] & (v_size < V_HEAD_SIZE)[None, :]
    if SPLIT:
        place = ((tile * BLOCK_Q + line // TILE_HEADS).to(tl.int64) * HEADS + head) * splits + split
        tl.store(parts + (place * V_HEAD_SIZE)[:, None] + v_size[None, :], weighed, mask=filled)
        tl.store(marks + place * 2, highest, mask=real)
        tl.store(marks + place * 2 + 1, total, mask=real)
    else:
        found = weighed / tl.where(total == 0.0, 1.0, total)[:, None]  # zero only in lines that are not real
        place = (token * HEADS + head) * V_HEAD_SIZE
        tl.store(out + place[:, None] + v_size[None, :], found.to(out.dtype.element_ty), mask=filled)
