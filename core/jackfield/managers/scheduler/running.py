"""The table of requests that hold a row: who may decode, whose prompt is unfinished, and where a row's request stands.

Everything derives from three columns: tokens known = prompt_tokens + sampled (the newest may still be on the device),
of which `computed` have their KV launched.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.managers.scheduler.table import ColumnTable


class RunningTable(ColumnTable):
    """`position[row]` is the table row of the request that holds this row of the request-to-token table, or -1."""

    def __init__(self, max_rows: int) -> None:
        super().__init__(capacity=max_rows)
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
        alive[alive] = self["uid"][position[alive]] == uids[alive]
        return position, alive

    def remaining(self) -> NDArray[np.int32]:
        """Known tokens whose KV is not launched [len]."""
        left: NDArray[np.int32] = self["prompt_tokens"] + self["sampled"] - self["computed"]
        return left

    def decoding(self) -> NDArray[np.intp]:
        """Rows that can decode now: one token to compute, and the cap not reached."""
        sampled = self["sampled"]
        return np.flatnonzero((self.remaining() == 1) & (sampled > 0) & (sampled < self["max_new_tokens"]))

    def prefilling(self) -> NDArray[np.intp]:
        """Rows with a part of their prompt to launch, oldest admission first."""
        left = self.remaining()
        return np.flatnonzero((left > 1) | ((left == 1) & (self["sampled"] == 0)))
