"""For what the scheduler waits when it can do nothing, and for how long. Handles nothing of what comes."""

from __future__ import annotations

from collections.abc import Callable

from jackfield.hookspecs import Wake
from jackfield.managers.scheduler.batch import StepInFlight
from jackfield.managers.scheduler.flush import PendingFlush
from jackfield.managers.scheduler.mailbox import Mailbox
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.queue import WaitingQueue
from jackfield.managers.scheduler.running import RunningTable
from jackfield.managers.scheduler.tiers.store import KVTiers
from jackfield.managers.scheduler.timeouts import Timeouts
from jackfield.managers.scheduler.worker_calls import WorkerCalls
from jackfield.observability.clock import Clock

DECLINED_PAUSE = 0.001
"""Seconds until a policy that let nobody run is asked again, unless a message comes first."""
COPY_PAUSE = 0.01
"""Seconds between two looks at copies to tiers while there is nothing else to do."""


class Waits:
    """doorbell: see `Scheduler`; None: inline, where there is nothing to block on"""

    def __init__(
        self,
        *,
        worker: WorkerCalls,
        mailbox: Mailbox,
        doorbell: Callable[[float | None], bool] | None,
        clock: Clock,
        timeouts: Timeouts,
        flush: PendingFlush,
        waiting: WaitingQueue,
        running: RunningTable,
        memory: KVMemory,
        tiers: KVTiers | None,
    ) -> None:
        self._worker = worker
        self._mailbox = mailbox
        self._doorbell = doorbell
        self._clock = clock
        self._timeouts = timeouts
        self._flush = flush
        self._waiting = waiting
        self._running = running
        self._memory = memory
        self._tiers = tiers

    def wait(self, oldest: StepInFlight | None, until: float | None) -> Wake:
        """oldest: the step in flight whose result is waited for. until: at most until then on the scheduler's clock. See
        `Scheduler.wait`."""
        due = [time for time in (until, self._timeouts.next(), self._flush.next()) if time is not None]
        until = min(due, default=None)
        if self._mailbox.peek():
            return Wake.MESSAGE
        if oldest is not None:
            return Wake.RESULT if self._worker.wait(oldest, self._rest(until)) else Wake.DEADLINE
        gated = bool(self._waiting.gated) or self._memory.loading > 0
        if self._doorbell is not None:
            late = Wake.GATE if gated else Wake.DEADLINE
            return Wake.MESSAGE if self._doorbell(self._pause(until)) else late
        return self._inline(until, gated)

    def _inline(self, until: float | None, gated: bool) -> Wake:
        pause, advance_to = self._pause(until), getattr(self._clock, "advance_to", None)
        if gated and self._tiers is not None and self._tiers.pending and advance_to is not None:
            self._tiers.wait(self._rest(until))
            return Wake.GATE
        if pause is not None and advance_to is not None:
            advance_to(self._clock.now() + pause)
            return Wake.GATE if gated else Wake.DEADLINE
        if gated:
            return Wake.GATE
        return Wake.DEADLINE if len(self._waiting) or len(self._running) else Wake.NOTHING

    def _rest(self, until: float | None) -> float | None:
        """Seconds from now."""
        return None if until is None else max(0.0, until - self._clock.now())

    def _pause(self, until: float | None) -> float | None:
        """Seconds to block for a message; None: until one comes."""
        rest = self._rest(until)
        if not len(self._waiting) and not len(self._running):
            if self._tiers is None or not self._tiers.pending:
                return rest
            return COPY_PAUSE if rest is None else min(rest, COPY_PAUSE)
        # Somebody is there and the policy lets nobody run; what it waits for may be the time alone.
        return DECLINED_PAUSE if rest is None else min(rest, DECLINED_PAUSE)
