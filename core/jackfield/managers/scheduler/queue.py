"""The waiting requests, in arrival order, with what bounds their wait. Knows neither memory nor running requests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.managers.scheduler.request import Request
from jackfield.managers.scheduler.table import ColumnTable


class WaitingQueue:
    """`table` holds one row a waiting request; rows stand in arrival order, because uids only grow."""

    def __init__(self, max_queued: int | None, max_skips: int) -> None:
        self.table = ColumnTable()
        self._max_queued = max_queued
        self._max_skips = max_skips

    def __len__(self) -> int:
        return len(self.table)

    def full(self) -> bool:
        return self._max_queued is not None and len(self.table) >= self._max_queued

    def add(self, request: Request) -> None:
        self.table.append(
            {
                "uid": request.uid,
                "arrival": request.arrival,
                "prompt_tokens": len(request.prompt),
                "max_new_tokens": request.max_new_tokens,
                "priority": request.priority,
                "tenant": request.tenant,
                "deadline": np.inf if request.deadline is None else request.deadline,
                "request": request,
                "ignore_eos": request.sampling.ignore_eos,
                "has_stop_ids": bool(request.stop_ids),
            }
        )

    def find(self, uid: int) -> int:
        """The table row of a waiting request. Raises KeyError if it does not wait."""
        uids = self.table["uid"]
        row = int(np.searchsorted(uids, uid))
        if row >= len(uids) or uids[row] != uid:
            raise KeyError(uid)
        return row

    def take(self, rows: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
        """Remove these rows, for another table."""
        return self.table.take(rows)

    def drop(self, rows: NDArray[np.intp]) -> None:
        self.table.drop(rows)

    def overdue(self) -> NDArray[np.intp]:
        """Rows that were passed over as often as anybody may be: they go first, in arrival order."""
        return np.flatnonzero(self.table["skips"] >= self._max_skips)

    def count_skips(self, passed: NDArray[np.bool_], newest_admitted: int) -> None:
        """After a round of admission, the admitted rows already gone.

        passed           [len] whom the policy or the hold-back left out
        newest_admitted  largest uid that was admitted, 0 for none: who is older and still here was overtaken
        """
        self.table["skips"][:] += passed | (self.table["uid"] < newest_admitted)
