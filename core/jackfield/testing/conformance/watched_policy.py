"""A policy that hands everything on to another one and notes what the scheduler does with it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import Amounts, Chosen, RequestTable, SchedulePolicy, SchedulerView, StepBudget, StepRecord


class Watched(SchedulePolicy):
    """Hands everything on, and notes the most skips that any waiting request has."""

    def __init__(self, inner: SchedulePolicy) -> None:
        self.inner, self.most = inner, 0

    def start(self, waiting: RequestTable, running: RequestTable, view: SchedulerView) -> None:
        self.inner.start(waiting, running, view)

    def budget(self, view: SchedulerView) -> StepBudget:
        return self.inner.budget(view)

    def order(self, waiting: RequestTable, view: SchedulerView) -> Any:
        self.most = max(self.most, int(waiting.skips.max(initial=0)))
        return self.inner.order(waiting, view)

    def take(self, row: int, most: int, waiting: RequestTable, chosen: Chosen, view: SchedulerView) -> int:
        return self.inner.take(row, most, waiting, chosen, view)

    def victims(
        self, running: RequestTable, need: Amounts, for_row: int | None, view: SchedulerView
    ) -> NDArray[np.intp]:
        return self.inner.victims(running, need, for_row, view)

    def observe(self, record: StepRecord) -> None:
        self.inner.observe(record)
