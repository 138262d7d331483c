"""Schedule policy `priority`: the request field `priority` decides, higher first, arrival among equals.

With `ageing` a waiting request gains on more urgent ones; without it, the core's --max-skips alone bounds its wait. It takes
no memory from running requests: this core retracts nobody yet.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from jackfield.hookspecs import PolicyContext, RequestTable, SchedulePolicy, SchedulerView, hookimpl
from jackfield_scheduler_policies.options import options_of


class PriorityOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    ageing: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="What a second of waiting adds to the priority; 0: nothing."
    )


class PriorityFirst(SchedulePolicy):
    def __init__(self, options: PriorityOptions) -> None:
        self.options = options

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        urgency = waiting.priority + self.options.ageing * (view.now - waiting.arrival)
        return np.lexsort((waiting.uid, -urgency))


@hookimpl
def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
    return PriorityFirst(options_of(context, PriorityOptions))
