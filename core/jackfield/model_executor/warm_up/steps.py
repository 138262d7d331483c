"""Which steps are run once at start, and what is asked of the draws behind them. Numbers and parameters alone.

Nobody tells the core how a plugin cuts its work into kernels. But it can do so only by what it is told of a batch: how many
new tokens rows have, whether rows of one and of several stand together, and how much lies before them. Of each there is one
step that is clearly on either side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jackfield.hookspecs import LogprobSpec

Step = tuple[tuple[int, int], ...]
"""(tokens before, new tokens) of each row."""

FEW, SOME, MANY = 2, 16, 128
"""New tokens of a row: as few as there can be beside one; more than small tiles take, and still not worth cutting; more than any
path for short rows takes."""
LONG = 2048
"""Tokens before the new ones: so many that whoever cuts long rows into pieces cuts this one."""

_STEPS: tuple[Step, ...] = (
    ((0, 1),),
    ((0, 1), (0, 1)),
    ((LONG, 1),),
    ((0, FEW),),
    ((LONG, FEW),),
    ((0, SOME),),
    ((LONG, SOME),),
    ((0, MANY),),
    ((LONG, MANY),),
    ((0, 1), (0, FEW)),
    ((LONG, 1), (LONG, FEW)),
    ((LONG, 1), (0, MANY)),
)


def warm_up_steps(*, max_running: int, max_tokens: int, max_context: int, whole: bool = False) -> list[Step]:
    """Those that the run may have, each at most once; rows that are too long for it are cut. whole: a prompt is computed in one
    step, so that nothing lies before it."""
    found: dict[Step, None] = {}
    for step in _STEPS:
        rows: list[tuple[int, int]] = []
        left = max_tokens
        for before, new in step[:max_running]:
            new = min(new, left, max_context)
            if new:
                rows.append((0 if whole else min(before, max_context - new), new))
                left -= new
        found[tuple(rows)] = None
    return list(found)


@dataclass(frozen=True)
class Asked:
    """What the rows of a step ask of their draws: fields of `RowOpen` for each; masked: a grammar's mask lies on them."""

    rows: Sequence[Mapping[str, Any]]
    masked: bool = False


def asked_of_draws(vocab_size: int, history: int) -> list[Asked]:
    """Each way to draw alone, all of them side by side, and each thing that may be asked of logits, of all rows of a step and of
    some. history: tokens of each row, at least one."""
    ids = np.zeros(1, dtype=np.int32)
    ways: list[Mapping[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 1.0, "top_k": min(20, vocab_size)},
        {"temperature": 1.0, "top_p": 0.9},
        {"temperature": 1.0, "min_p": 0.1},
    ]
    wishes: list[Mapping[str, Any]] = [
        {"frequency_penalty": 0.1, "presence_penalty": 0.1},
        {"repetition_penalty": 1.1},
        {"bias_ids": ids, "bias_values": np.ones(1, dtype=np.float32)},
        {"min_new_tokens": 1, "end_ids": ids},
        {"logprobs": LogprobSpec(top=1, ids=ids, prompt_start=min(1, history), prompt_end=history)},
    ]
    found = [Asked([one]) for one in (*ways, *wishes)]
    return [*found, Asked(ways), Asked([{}, *wishes]), Asked([{}], masked=True)]
