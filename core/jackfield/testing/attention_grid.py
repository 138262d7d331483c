"""Which cases an attention backend is tried on: covering arrays over sizes, lengths and what its manifest claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from jackfield.testing.attention_batches import AttentionCase
from jackfield.testing.covering import pairwise

BATCHES: Mapping[str, tuple[tuple[int, int], ...]] = {
    "prefill": ((0, 1), (0, 7), (0, 16), (0, 33)),
    "chunk": ((5, 3), (16, 16), (31, 2), (64, 1), (16, 16)),
    "decode": ((0, 1), (15, 1), (16, 1), (40, 1), (41, 1), (3, 1)),
    "one-token rows among longer ones": ((12, 1), (0, 9), (7, 5), (20, 1), (0, 1)),
    "whole pages cached": ((64, 1), (16, 1), (128, 3)),
    "one token": ((0, 1),),
    "long": ((0, 70), (130, 20), (127, 1), (128, 1), (257, 5)),
}
"""(cached, new) tokens of each row."""

MIXED = ("chunk", "decode", "one-token rows among longer ones", "long")
"""Batches that may be sent as mode MIXED."""

TREES = ("chunk", "one-token rows among longer ones", "long")
"""Batches whose new tokens may be trees of drafts."""

SIZES: Mapping[str, Sequence[Any]] = {
    "head_size": (64, 80, 96, 128, 256, 8, 16),
    "v_head_size": (None, 24),
    "heads": ((4, 4), (8, 2), (9, 3), (4, 1), (1, 1)),
    "page_size": (16, 1, 64),
    "scale": (None, 0.3),
}
WINDOWS, SOFT_CAPS = (8, 1, 17, 100), (2.0, 30.0)


SMALL_ROWS, SMALL_HEADS = 3, 4


def small(case: AttentionCase) -> AttentionCase:
    """The same question with every second row, and with fewer heads in the same ratio. Sizes, lengths and all that a kernel
    branches on stay."""
    ratio = case.num_heads // case.num_kv_heads
    kv_heads = max(1, min(case.num_kv_heads, SMALL_HEADS // ratio))
    lengths = case.lengths if len(case.lengths) <= SMALL_ROWS else case.lengths[::2][:SMALL_ROWS]
    return replace(case, lengths=lengths, num_heads=kv_heads * ratio, num_kv_heads=kv_heads)


def cases(
    layouts: Sequence[Any], lengths: Iterable[str] = BATCHES, *, few: bool = False, **factors: Sequence[Any]
) -> list[AttentionCase]:
    """Cases in which every two values of every two factors meet. few: a handful of sizes, where others are asked about."""
    sizes = {"head_size": (64, 16), "heads": ((4, 2), (3, 1)), "page_size": (16, 1, 64)} if few else SIZES
    rows = pairwise({**sizes, "layout": layouts, "lengths": tuple(lengths), **factors})
    found = []
    for seed, row in enumerate(rows):
        num_heads, num_kv_heads = row.pop("heads")
        row["lengths"] = BATCHES[row["lengths"]]
        found.append(AttentionCase(num_heads=num_heads, num_kv_heads=num_kv_heads, seed=seed, **row))
    return found


def thinned(tried: Iterable[AttentionCase]) -> list[AttentionCase]:
    """Of these cases as few in turn as have every value of every factor: for an interpreter, which takes a second for what a
    device does in a millisecond."""
    known: set[tuple[str, str]] = set()
    found = []
    for case in tried:
        values = {(one.name, repr(getattr(case, one.name))) for one in fields(case) if one.name != "seed"}
        if not values <= known:
            found.append(case)
            known |= values
    return found
