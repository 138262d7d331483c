"""Whether the scheduler moves, and which plugins are ill. Asked from any thread; never blocks, so it answers when nothing
else does.

Knows reports and open requests. Where the server is in its life (starting, draining, failed) is its own business
(`http.status`), and whether processes live is the supervisor's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jackfield.ipc.messages import SchedulerReport
from jackfield.observability.clock import Clock


class HealthMonitor:
    """timeout      seconds without a completed step, while requests are open, after which the replica is unhealthy
    busy_since      since when requests have been open without a pause, None if none is
    faults          plugin -> its account in the ledger, of all processes
    overruns        plugin -> method or hook -> calls that took longer than they may
    """

    def __init__(
        self,
        clock: Clock,
        timeout: float,
        *,
        busy_since: Callable[[], float | None],
        faults: Callable[[], Mapping[str, Mapping[str, Any]]],
        overruns: Callable[[], Mapping[str, Mapping[str, int]]] = dict,
    ) -> None:
        self._clock = clock
        self._timeout = timeout
        self._busy_since = busy_since
        self._faults = faults
        self._overruns = overruns
        self._steps = 0
        self._last_step: float | None = None

    def on_report(self, report: SchedulerReport) -> None:
        if report.steps > self._steps:
            self._steps = report.steps
            self._last_step = self._clock.now()

    def stalled(self) -> str | None:
        """What is wrong, for a person; None while the scheduler moves or has nothing to do."""
        busy, last = self._busy_since(), self._last_step
        if busy is None:
            return None
        # Work that came after a pause is waited for from its own beginning.
        still = self._clock.now() - (busy if last is None else max(busy, last))
        if still <= self._timeout:
            return None
        return f"requests are open, and no step was completed for {still:.1f} s (limit {self._timeout:g} s)"

    def status(self) -> tuple[bool, dict[str, Any]]:
        """(healthy, {reason, last_step_age_s, faults, quarantined, degraded, overruns}).

        reason          as `stalled`; "" if it moves
        last_step_age_s seconds since a step was last reported, None before the first
        faults          plugin -> how often it failed
        quarantined     plugins that are switched off
        degraded        plugins whose decisions were replaced by defaults at least once
        overruns        plugin -> method or hook -> calls that took longer than `--plugin-time-budget`
        """
        reason, last, faults = self.stalled(), self._last_step, self._faults()
        return reason is None, {
            "reason": reason or "",
            "last_step_age_s": None if last is None else self._clock.now() - last,
            "faults": {name: account["count"] for name, account in faults.items()},
            "quarantined": [name for name, account in faults.items() if account["quarantined"]],
            "degraded": [name for name, account in faults.items() if account["by_scope"].get("degrade")],
            "overruns": self._overruns(),
        }
