"""Schedule policy `edf`: earliest deadline first. The request field `deadline_s` decides; who has none comes last, by arrival.

A deadline orders and ends nothing. Under overload, serving late requests first makes the next ones late as well; `late`
says what to do with them.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from jackfield.hookspecs import PolicyContext, RequestTable, SchedulePolicy, SchedulerView, hookimpl
from jackfield_scheduler_policies.options import options_of


class EdfOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    late: Literal["first", "last"] = Field(
        "first", description="Whose deadline has passed: before all others, or behind them."
    )


class EarliestDeadlineFirst(SchedulePolicy):
    def __init__(self, options: EdfOptions) -> None:
        self.options = options

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        if self.options.late == "last":
            return np.lexsort((waiting.uid, waiting.deadline, waiting.deadline <= view.now))
        return np.lexsort((waiting.uid, waiting.deadline))


@hookimpl
def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
    return EarliestDeadlineFirst(options_of(context, EdfOptions))
