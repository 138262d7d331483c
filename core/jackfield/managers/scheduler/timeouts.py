"""Ends requests that waited or ran longer than they may. Knows the tables and the clock's time, no memory and no policy.

Waiting counts from arrival as long as a request never ran; running from its first admission, and goes on through a
retraction. So each clock of a request starts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from jackfield.ipc.messages import FinishReason
from jackfield.managers.scheduler.queue import WaitingQueue
from jackfield.managers.scheduler.release import Ending, Releaser
from jackfield.managers.scheduler.request import Request
from jackfield.managers.scheduler.running import RunningTable

WAITING_TIMEOUT = "request_waiting_timeout"
RUNNING_TIMEOUT = "request_running_timeout"


Starts = tuple[list[Request], NDArray[np.float64]]
"""Requests, and when the clock of each began."""


class _Limit:
    """`due` is the least time at which anybody may be due, as of the last look. It stays a lower bound until then: whoever
    comes later starts later, and who leaves can only put it off. With nobody there it is looked up again."""

    def __init__(self, seconds: float | None, starts: Callable[[], Iterator[Starts]]) -> None:
        self._seconds = seconds
        self._starts = starts
        self._due = np.inf

    def next(self) -> float:
        """Infinity if nobody is counted."""
        if self._seconds is not None and self._due == np.inf:
            earliest = min((float(times.min()) for _, times in self._starts() if len(times)), default=np.inf)
            self._due = earliest + self._seconds
        return self._due

    def expired(self, now: float) -> list[tuple[Request, float]]:
        """Who is due, and since when each was counted."""
        if self._seconds is None or now < self.next():
            return []
        self._due = np.inf
        found: list[tuple[Request, float]] = []
        for requests, times in self._starts():
            found += [(requests[at], float(times[at])) for at in np.flatnonzero(times + self._seconds <= now).tolist()]
        return found


class Timeouts:
    """waiting, running: seconds, or None for no limit."""

    def __init__(
        self,
        waiting: float | None,
        running: float | None,
        *,
        queue: WaitingQueue,
        table: RunningTable,
        releaser: Releaser,
    ) -> None:
        self._limits = (
            (_Limit(waiting, self._waiting), _waited, waiting),
            (_Limit(running, self._running), _ran, running),
        )
        self._queue = queue
        self._table = table
        self._releaser = releaser

    def next(self) -> float | None:
        """When the next request may be due, on the scheduler's clock; never too late, perhaps too early. None: nobody is."""
        due = min(limit.next() for limit, _, _ in self._limits)
        return None if due == np.inf else due

    def expire(self, now: float) -> int:
        """End all who are due. Returns how many."""
        endings = [
            Ending(request=request, finish=finish(now - since, seconds))
            for limit, finish, seconds in self._limits
            for request, since in limit.expired(now)
        ]
        if endings:
            self._releaser.release(endings, now)
        return len(endings)

    def _waiting(self) -> Iterator[Starts]:
        table = self._queue.table
        never_ran = np.flatnonzero(table["started"] == np.inf)
        yield table["request"][never_ran].tolist(), table["arrival"][never_ran]
        gated = list(self._queue.gated.values())
        yield gated, np.array([request.arrival for request in gated], dtype=np.float64)

    def _running(self) -> Iterator[Starts]:
        yield self._table["request"].tolist(), self._table["started"]
        table = self._queue.table
        retracted = np.flatnonzero(table["started"] != np.inf)
        yield table["request"][retracted].tolist(), table["started"][retracted]


def _waited(seconds: float, limit: float | None) -> FinishReason:
    return FinishReason(
        type="abort",
        status_code=503,
        err_type=WAITING_TIMEOUT,
        message=f"The request waited {seconds:.1f} s without being started; the limit is {limit:g} s "
        "(--request-waiting-timeout).",
    )


def _ran(seconds: float, limit: float | None) -> FinishReason:
    return FinishReason(
        type="abort",
        status_code=503,
        err_type=RUNNING_TIMEOUT,
        message=f"The request ran {seconds:.1f} s without coming to its end; the limit is {limit:g} s "
        "(--request-running-timeout).",
    )
