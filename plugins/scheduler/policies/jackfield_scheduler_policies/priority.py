"""Schedule policy `priority`: the request field `priority` decides, higher first, arrival among equals.

With `ageing` a waiting request gains on more urgent ones; without it, the core's --max-skips alone bounds its wait.

Who waits for memory or a place takes it from running requests whose own priority, without ageing, is lower by more than
`preempt_difference`: lowest priority first, newest first among equals. They lose no token and go on when there is room.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from jackfield.hookspecs import Amounts, PolicyContext, RequestTable, SchedulePolicy, SchedulerView, hookimpl
from jackfield_scheduler_policies.options import options_of


class PriorityOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    ageing: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="What a second of waiting adds to the priority; 0: nothing."
    )
    preempt_difference: int = Field(
        10, ge=-1, description="A running request gives way to one that is more urgent by more than this; -1: never."
    )


class PriorityFirst(SchedulePolicy):
    def __init__(self, options: PriorityOptions) -> None:
        self.options = options

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        urgency = waiting.priority + self.options.ageing * (view.now - waiting.arrival)
        return np.lexsort((waiting.uid, -urgency))

    def victims(
        self, running: RequestTable, need: Amounts, for_row: int | None, view: SchedulerView
    ) -> NDArray[np.intp]:
        priority = running.priority.astype(np.int64)
        rows: NDArray[np.intp] = np.lexsort((-running.uid, priority))
        if for_row is None:
            return rows
        if view.waiting is None or self.options.preempt_difference < 0:
            return rows[:0]
        milder: NDArray[np.bool_] = priority[rows] + self.options.preempt_difference < view.waiting.priority[for_row]
        return rows[milder]


@hookimpl
def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
    return PriorityFirst(options_of(context, PriorityOptions))
