"""First look at rows of logits: the greedy token; and of rows that are filtered, between which weights the border of top-k and
top-p lies, and a list of the tokens from there upwards if it is short.

A program goes over its row three times: for the largest logit; for how many tokens there are above each of a few weights, and
what they weigh; and to make the list. Nothing is sorted. Weights are added as integers, which is exact in any order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from jackfield_ops_triton.kernels.draws import ONE, at_index, weights

DONE = tl.constexpr(-2)
WHOLE = tl.constexpr(-1)
"""In the place of a list's length: the row has its token; no list, it is drawn from the whole row."""

STEPS = tl.constexpr(8)
_STEP = tl.constexpr(4)  # each weight is 2 ** -_STEP of the one before, the last is 0


@triton.jit
def first_largest(row, vocab, TILE: tl.constexpr):
    """(largest logit, the lowest id that has it, whether the row can be drawn from)."""
    largest = -float("inf")
    token = 0
    nans = 0
    for start in range(0, vocab, TILE):
        at = start + tl.arange(0, TILE)
        x = tl.load(row + at, mask=at < vocab, other=-float("inf"))
        nans += tl.sum((x != x).to(tl.int32), 0)
        found, index = tl.max(tl.where(x == x, x, -float("inf")), 0, return_indices=True)
        token = tl.where(found > largest, start + index, token)
        largest = tl.maximum(largest, found)
    sound = (nans == 0) & (largest > -float("inf")) & (largest < float("inf"))
    return largest, token, sound


@triton.jit
def weighed_above(
    row, vocab, largest, temperature, borders, SIZE: tl.constexpr, SCALE: tl.constexpr, TILE: tl.constexpr
):
    """(int32 how many tokens weigh more than each border, int64 what they weigh times SCALE), [SIZE]."""
    counts = tl.zeros([SIZE], tl.int32)
    sums = tl.zeros([SIZE], tl.int64)
    for start in range(0, vocab, TILE):
        at = start + tl.arange(0, TILE)
        w = weights(tl.load(row + at, mask=at < vocab, other=-float("inf")), largest, temperature)
        above = w.to(tl.int32, bitcast=True)[:, None] > borders[None, :]
        counts += tl.sum(above.to(tl.int32), 0)
        sums += tl.sum(tl.where(above, (w * SCALE).to(tl.int64)[:, None], 0), 0)
    return counts, sums


@triton.jit
def survey(
    logits,  # float32 [n, vocab], rows stride apart
    temperature,  # as in SamplingRows, [n]
    top_k,
    top_p,
    tokens,  # out, int64 [n]: the greedy ones, -1 where a row cannot be drawn from
    tops,  # out, float32 [n]: largest logits
    limits,  # out, int64 [n]: what may weigh before a token that is kept, times SCALE
    lows,  # out, int32 [n]: the border's least bits
    highs,  # out, int32 [n]: its most
    lengths,  # out, int32 [n]: of the lists, or DONE or WHOLE
    listed,  # out, float32 [n, ROOM]: the weights of the lists
    ids,  # out, int32 [n, ROOM]: in rising order
    stride,
    vocab,
    ROOM: tl.constexpr,
    SCALE: tl.constexpr,
    TILE: tl.constexpr,
    FLAT: tl.constexpr,
    GREEDY: tl.constexpr,
):
    """TILE: tokens at once; FLAT: where each is held against all borders. GREEDY: every row is."""
    n = tl.program_id(0).to(tl.int64)
    row = logits + n * stride
    largest, token, sound = first_largest(row, vocab, TILE)
    tl.store(tokens + n, tl.where(sound, token, -1).to(tl.int64))
    if not GREEDY:
        heat = tl.load(temperature + n)
        k = tl.load(top_k + n)
        p = tl.load(top_p + n)
        tl.store(tops + n, largest)
        if (sound == 0) | (heat <= 0):
            tl.store(lengths + n, DONE)
        elif (k >= vocab) & (p >= 1):
            tl.store(lengths + n, WHOLE)
            tl.store(lows + n, 0)
            tl.store(highs + n, 0)
        else:
            step = tl.arange(0, STEPS)
            borders = tl.where(step < STEPS - 1, (step + 1) * -(_STEP << 23) + ONE, 0)
            counts, sums = weighed_above(row, vocab, largest, heat, borders, STEPS, SCALE, FLAT)
            total = at_index(sums, STEPS - 1, STEPS)
            limit = tl.where(p < 1, (total.to(tl.float64) * p.to(tl.float64)).to(tl.int64), total)
            # A border keeps a token of its own weight if too few and too light ones are above it; so do all higher ones.
            keeping = tl.sum(((counts < k) & (sums <= limit)).to(tl.int32), 0)
            tl.store(limits + n, limit)
            low = 0
            high = 0
            length = WHOLE
            if keeping < STEPS:  # else even the lightest is kept
                low = at_index(borders, keeping, STEPS) + 1
                high = tl.where(keeping > 0, at_index(borders, keeping - 1, STEPS), ONE)
                found = at_index(counts, keeping, STEPS)
                if found <= ROOM:
                    length = found
                    placed = 0
                    for start in range(0, vocab, TILE):
                        at = start + tl.arange(0, TILE)
                        w = weights(tl.load(row + at, mask=at < vocab, other=-float("inf")), largest, heat)
                        here = w.to(tl.int32, bitcast=True) >= low
                        to = n * ROOM + placed + tl.cumsum(here.to(tl.int32), 0) - 1
                        tl.store(listed + to, w, mask=here)
                        tl.store(ids + to, at, mask=here)
                        placed += tl.sum(here.to(tl.int32), 0)
            tl.store(lows + n, low)
            tl.store(highs + n, high)
            tl.store(lengths + n, length)
