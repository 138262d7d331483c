"""The table of requests that hold a row: who may decode, whose prompt is unfinished, and where a row's request stands.

Everything derives from four columns: tokens known = prompt_tokens + sampled (the newest may still be on the device), of
which `computed` have their KV launched; the first `goal` of them were known at admission and are a prefill's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.managers.scheduler.new_token_ratio import CLIP
from jackfield.managers.scheduler.table import ColumnTable


class RunningTable(ColumnTable):
    """position   [row of the request-to-token table] -> the table row of the request that holds it, or -1
    per_row    most tokens that a decoding row may give in one step
    """

    def __init__(self, max_rows: int, per_row: int = 1) -> None:
        super().__init__(capacity=max_rows)
        self.per_row = per_row
        self.position = np.full(max_rows, -1, dtype=np.intp)

    def reindex(self) -> None:
        """After rows came or went."""
        self.position.fill(-1)
        self.position[self["row"]] = np.arange(len(self))

    def locate(self, rows: NDArray[np.int32], uids: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Table rows of the requests that held `rows` when a batch was made, and which of them still live [n].

        A row may have been given to another request since, hence the uids.
        """
        position = self.position[rows]
        alive = position >= 0
        if np.count_nonzero(alive) == len(rows):
            return position, self["uid"][position] == uids
        alive[alive] = self["uid"][position[alive]] == uids[alive]
        return position, alive

    def remaining(self) -> NDArray[np.int32]:
        """Known tokens whose KV is not launched [len]."""
        left: NDArray[np.int32] = self["prompt_tokens"] + self["sampled"] - self["computed"]
        return left

    def decoding(self, *, launched: bool = False) -> NDArray[np.intp]:
        """Rows that can decode now: one token to compute, and the cap not reached. launched: nobody is `prefilling`."""
        ready: NDArray[np.bool_] = self.remaining() == 1
        if not launched:
            ready &= self["computed"] >= self["goal"]
        ready &= self["sampled"] < self["max_new_tokens"]
        return ready.nonzero()[0]

    def prefilling(self) -> NDArray[np.intp]:
        """Rows with a part of what was known at admission to launch, oldest admission first."""
        return (self["computed"] < self["goal"]).nonzero()[0]

    def promises(self, ratio: float, page_size: int) -> NDArray[np.int32]:
        """Slots that each row is expected to take beyond those it has, whole pages [len]."""
        prompt, most, sampled = self["prompt_tokens"], self["max_new_tokens"], self["sampled"]
        ends = expected_end(prompt + sampled, most - sampled, ratio, self.per_row)
        np.minimum(ends, prompt + np.maximum(most - 1, 0), out=ends)  # who has all tokens never computes the last
        slots: NDArray[np.int32] = np.maximum((ends + (page_size - 1)) // page_size * page_size - self["allocated"], 0)
        return slots

    def promised(self, ratio: float, page_size: int) -> int:
        """Slots that all rows together are expected to take beyond those they have."""
        return int(self.promises(ratio, page_size).sum())


def expected_end(known: NDArray[np.int32], left: NDArray[np.int32], ratio: float, least: int = 1) -> NDArray[np.int32]:
    """Tokens whose KV requests are expected to need in the end [n]: the worst case from ratio 1 on.

    known   tokens that they have [n]
    left    output tokens that they may still get [n]; `least` of them are expected in any case
    """
    if ratio < 1:
        left = np.maximum(np.ceil(np.minimum(left, CLIP) * ratio).astype(np.int32), np.minimum(left, least))
    ends: NDArray[np.int32] = known + np.maximum(left - 1, 0)  # the last one is sampled, but never computed
    return ends
