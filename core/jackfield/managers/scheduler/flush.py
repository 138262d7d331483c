"""When the prefix cache may be forgotten: never under a request, and never while a step may still write. A flush that has to
wait waits here, and there is at most one."""

from __future__ import annotations

from collections.abc import Callable

from jackfield.ipc.messages import FlushCacheRequest, WarmUpRequest
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.state import SchedulerState

IN_PROGRESS = "Another flush_cache is already in progress."


class PendingFlush:
    """answer: called once for every message that was asked, with "" or the reason why the cache was not flushed."""

    def __init__(
        self,
        *,
        memory: KVMemory,
        state: Callable[[], SchedulerState],
        answer: Callable[[FlushCacheRequest | WarmUpRequest, str], None],
    ) -> None:
        self._memory = memory
        self._state = state
        self._answer = answer
        self._waiting: FlushCacheRequest | WarmUpRequest | None = None
        self._deadline = 0.0
        self._seconds = 0.0

    def next(self) -> float | None:
        """When the flush that waits is given up, on the scheduler's clock; None if none waits for a time."""
        return self._deadline if self._waiting is not None and self._seconds else None

    def ask(self, message: FlushCacheRequest | WarmUpRequest, now: float) -> None:
        """Flush, refuse, or wait: for requests as long as `timeout` says, and for steps still in flight in any case."""
        if self._waiting is not None:
            self._answer(message, IN_PROGRESS)
            return
        self._waiting = message
        self._seconds = message.timeout if isinstance(message, FlushCacheRequest) else 0.0
        self._deadline = now + self._seconds
        self.poll(now)

    def poll(self, now: float) -> int:
        """Flush if nothing is open any more, give up if it is time. Returns whether the flush that waited was answered.

        With nobody open, a copy that is under way still holds slots, and steps still in flight are the surplus of requests
        that have ended: whoever got their answer and flushes then is not refused for that.
        """
        message = self._waiting
        if message is None:
            return 0
        state = self._state()
        if state.running or state.waiting:
            if now < self._deadline:
                return 0
            reason = (
                f"the cache is flushed only when nothing runs: {state.running} requests run, {state.waiting} wait, "
                f"{state.in_flight} steps are in flight"
            )
            if self._seconds:
                reason += f"; so it was for the whole timeout of {self._seconds:g} s"
        elif state.in_flight or state.pending:
            return 0
        else:
            self._memory.reset()
            reason = ""
        self._waiting = None
        self._answer(message, reason)
        return 1
