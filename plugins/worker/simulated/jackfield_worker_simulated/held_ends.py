"""Which tokens a request must not end with yet: `min_new_tokens`, for a worker that chooses tokens without logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import RowOpen

NOTHING_LEFT = "every token would end the request before its min_new_tokens"


@dataclass(frozen=True)
class _Held:
    """until: tokens that the row must have before an end; others: what may come instead."""

    uid: int
    until: int
    ends: frozenset[int]
    others: NDArray[np.int32]


class HeldEnds:
    """choice: the ids from which the worker draws."""

    def __init__(self, choice: NDArray[np.int32]) -> None:
        self._choice = choice
        self._of: dict[int, _Held] = {}

    def close(self, rows: NDArray[np.int32]) -> None:
        if self._of:
            for row in rows.tolist():
                self._of.pop(row, None)

    def open(self, opened: RowOpen) -> None:
        if opened.min_new_tokens > opened.outputs and len(opened.end_ids):
            self._of[opened.row] = _Held(
                uid=opened.uid,
                until=len(opened.history) - opened.outputs + opened.min_new_tokens,
                ends=frozenset(opened.end_ids.tolist()),
                others=np.setdiff1d(self._choice, opened.end_ids),
            )

    def replace(
        self, tokens: NDArray[np.int32], rows: NDArray[np.int32], uids: NDArray[np.int64], at: NDArray[np.int32]
    ) -> dict[int, str]:
        """Put other tokens, in place, where one [m] of a row with `at` known tokens would end its request too early.

        Which one depends on the token and its position alone. Returns index -> why, where there is no other.
        """
        failed: dict[int, str] = {}
        if not self._of:
            return failed
        for i, row in enumerate(rows.tolist()):
            held = self._of.get(row)
            if held is None or held.uid != uids[i] or at[i] >= held.until or int(tokens[i]) not in held.ends:
                continue
            if len(held.others):
                tokens[i] = held.others[(int(tokens[i]) + int(at[i])) % len(held.others)]
            else:
                failed[i] = NOTHING_LEFT
        return failed
