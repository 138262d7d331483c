"""The waiting requests, in arrival order, with what bounds their wait. Knows neither memory nor running requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.managers.scheduler.request import Request
from jackfield.managers.scheduler.table import ColumnTable


class WaitingQueue:
    """table   one row a waiting request, in arrival order, because uids only grow
    gated   uid -> a request that waits at a gate: counted, but in no table, because nobody may choose it yet
    on_withdraw   called with the uid of a gated request that ends
    """

    def __init__(self, max_queued: int | None, max_skips: int) -> None:
        self.table = ColumnTable()
        self.gated: dict[int, Request] = {}
        self.on_withdraw: Callable[[int], None] | None = None
        self._max_queued = max_queued
        self._max_skips = max_skips
        self._newest_looked_at = 0

    def __len__(self) -> int:
        return len(self.table) + len(self.gated)

    def full(self, places: int) -> bool:
        """Whether one more would be more than may wait. places: how many more may run now.

        Who came since the last round of admission does not wait for a place that is free, unless others could not use it.
        """
        if self._max_queued is None:
            return False
        uids = self.table["uid"]
        older = int(np.searchsorted(uids, self._newest_looked_at, "right"))
        at_once = 0 if older else min(len(uids), max(0, places))
        return len(self) - at_once >= self._max_queued

    def looked_at(self) -> None:
        """A round of admission is over: who is still here waits."""
        if len(self.table):
            self._newest_looked_at = max(self._newest_looked_at, int(self.table["uid"][-1]))

    def gate(self, request: Request) -> None:
        """It waits, and may not be chosen."""
        self.gated[request.uid] = request

    def open(self, request: Request) -> None:
        """It may be chosen from now on; its place is that of its arrival."""
        self.gated.pop(request.uid, None)
        self.add(request)
        self._sort()

    def withdraw(self, uid: int) -> bool:
        """A gated request ends. False: it is not gated."""
        if self.gated.pop(uid, None) is None:
            return False
        if self.on_withdraw is not None:
            self.on_withdraw(uid)
        return True

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
                "started": np.inf,
                "ignore_eos": request.sampling.ignore_eos,
                "has_stop_ids": bool(request.stop_ids),
                "wants_logprobs": request.logprobs is not None,
                "constrained": request.sampling.grammar is not None,
            }
        )

    def put_back(self, columns: dict[str, NDArray[Any]]) -> None:
        """Retracted requests wait again, each at its place by arrival. They were accepted once: no limit holds for them."""
        for name in ("computed", "written", "allocated", "held_tokens", "cached_tokens", "hinted", "row", "goal"):
            columns[name][:] = 0
        self.table.extend(columns)
        self._sort()

    def _sort(self) -> None:
        """After rows came that are not the newest."""
        uids = self.table["uid"]
        if (np.diff(uids) < 0).any():
            self.table.extend(self.table.take(np.argsort(uids)))

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
