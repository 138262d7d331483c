"""The draw of each row: the exact border of top-k and top-p, and the race of the tokens that are left.

Both go over the list that `survey` made of the heaviest tokens, or over the whole row if it made none.
"""

from __future__ import annotations

import triton
import triton.language as tl

from jackfield_ops_triton.kernels.draws import at_index, exponentials, hashes, weights
from jackfield_ops_triton.kernels.survey import DONE, WHOLE

_NEARLY_ONE = tl.constexpr(1 - 1e-6)  # less by more than float32 rounds where it tells whether a token may win


@triton.jit
def _tile(row, listed, largest, temperature, at, count, FROM_LIST: tl.constexpr):
    """Weights of the tokens in these places."""
    if FROM_LIST:
        return tl.load(listed + at, mask=at < count, other=0.0)
    else:
        return weights(tl.load(row + at, mask=at < count, other=-float("inf")), largest, temperature)


@triton.jit
def _above(
    row, listed, largest, temperature, count, borders, FROM_LIST: tl.constexpr, WAYS: tl.constexpr, SCALE: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """(how many tokens weigh more than each border, what they weigh times SCALE), [WAYS]."""
    counts = tl.zeros([WAYS], tl.int32)
    sums = tl.zeros([WAYS], tl.int64)
    for start in range(0, count, TILE):
        w = _tile(row, listed, largest, temperature, start + tl.arange(0, TILE), count, FROM_LIST)
        over = w.to(tl.int32, bitcast=True)[:, None] > borders[None, :]
        counts += tl.sum(over.to(tl.int32), 0)
        sums += tl.sum(tl.where(over, (w * SCALE).to(tl.int64)[:, None], 0), 0)
    return counts, sums


@triton.jit
def _border(
    row, listed, largest, temperature, count, k, limit, low, high, FROM_LIST: tl.constexpr, WAYS: tl.constexpr,
    SCALE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """(bits of the least weight that is kept, how many tokens of just this weight are); bits 0: all are.

    The least of low .. high whose tokens above are fewer than k and weigh at most the limit; `high` is known to be such.
    """
    way = tl.arange(0, WAYS)
    while low < high:
        tried = low + ((high - low).to(tl.int64) * (way + 1) // (WAYS + 1)).to(tl.int32)
        counts, sums = _above(row, listed, largest, temperature, count, tried, FROM_LIST, WAYS, SCALE, TILE)
        short = WAYS - tl.sum(((counts < k) & (sums <= limit)).to(tl.int32), 0)
        high = tl.where(short < WAYS, at_index(tried, short, WAYS), high)
        low = tl.where(short > 0, at_index(tried, short - 1, WAYS) + 1, low)
    room = 0
    if low > 0:
        borders = tl.zeros([WAYS], tl.int32) + low
        counts, sums = _above(row, listed, largest, temperature, count, borders, FROM_LIST, WAYS, SCALE, TILE)
        room = k - at_index(counts, 0, WAYS)
        one = (low.to(tl.float32, bitcast=True) * SCALE).to(tl.int64)
        if one > 0:
            room = tl.minimum(room.to(tl.int64), (limit - at_index(sums, 0, WAYS)) // one + 1).to(tl.int32)
    return low, room


@triton.jit
def _winner(
    row,
    listed,
    ids,
    largest,
    temperature,
    count,
    border,
    room,
    min_p,
    stream,
    FROM_LIST: tl.constexpr,
    TILE: tl.constexpr,
):
    """The id of the token with the most weight / -log(u), of equals the lowest."""
    best = tl.full([], 0.0, tl.float64)
    winner = 0
    equals = 0
    for start in range(0, count, TILE):
        at = start + tl.arange(0, TILE)
        w = _tile(row, listed, largest, temperature, at, count, FROM_LIST)
        bits = w.to(tl.int32, bitcast=True)
        left = (bits > border) & (w >= min_p)
        if border > 0:
            same = (bits == border).to(tl.int32)
            left = left | ((same > 0) & (equals + tl.cumsum(same, 0) <= room) & (w >= min_p))
            equals += tl.sum(same, 0)
        token = at
        if FROM_LIST:
            token = tl.load(ids + at, mask=at < count, other=0)
        noise = hashes(stream, token)
        # -log(u) is more than 1 - u, so only a token that weighs more than (1 - u) * best can win: of most tiles none.
        upper = (noise >> 32).to(tl.uint32).to(tl.float32) * 2.3283064365386963e-10
        may = left & (w >= (-upper + _NEARLY_ONE) * best.to(tl.float32))
        if tl.sum(may.to(tl.int32), 0) > 0:
            scores = tl.where(may, w.to(tl.float64) / exponentials(noise), 0.0)
            found, index = tl.max(scores, 0, return_indices=True)
            if found > best:
                best = found
                winner = at_index(token, index, TILE)
    return winner


@triton.jit
def race(
    logits,  # as in `survey`, which filled all that is not `tokens`
    temperature,
    top_k,
    min_p,
    stream,
    tokens,  # in, out: of the rows that are not DONE
    tops,
    limits,
    lows,
    highs,
    lengths,
    listed,
    ids,
    stride,
    vocab,
    ROOM: tl.constexpr,
    SCALE: tl.constexpr,
    TILE: tl.constexpr,
    LIST_TILE: tl.constexpr,
    LIST_WAYS: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + n)
    if length != DONE:
        row = logits + n * stride
        listed += n * ROOM
        ids += n * ROOM
        largest = tl.load(tops + n)
        heat = tl.load(temperature + n)
        k = tl.load(top_k + n)
        least = tl.load(min_p + n)
        bits = tl.load(stream + n).to(tl.uint64, bitcast=True)
        low = tl.load(lows + n)
        high = tl.load(highs + n)
        limit = tl.load(limits + n)
        if length == WHOLE:
            border, room = _border(row, listed, largest, heat, vocab, k, limit, low, high, False, 1, SCALE, TILE)
            token = _winner(row, listed, ids, largest, heat, vocab, border, room, least, bits, False, TILE)
            tl.store(tokens + n, token.to(tl.int64))
        else:
            border, room = _border(
                row, listed, largest, heat, length, k, limit, low, high, True, LIST_WAYS, SCALE, LIST_TILE
            )
            token = _winner(row, listed, ids, largest, heat, length, border, room, least, bits, True, LIST_TILE)
            tl.store(tokens + n, token.to(tl.int64))
