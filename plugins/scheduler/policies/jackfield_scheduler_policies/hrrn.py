"""Schedule policy `hrrn`: highest response ratio next. The ratio is 1 + waited / service: short requests go first, and a long
one gains on them with every second that it waits, so that nobody starves.

Service is counted in tokens, because the order does not depend on how many of them a second has.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from jackfield.hookspecs import PolicyContext, RequestTable, SchedulePolicy, SchedulerView, hookimpl
from jackfield_scheduler_policies.options import options_of


class HrrnOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    output_weight: float = Field(
        1.0, ge=0, allow_inf_nan=False, description="Prompt tokens that one possible output token is worth."
    )


class HighestResponseRatioNext(SchedulePolicy):
    def __init__(self, options: HrrnOptions) -> None:
        self.options = options

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        prefill = waiting.prompt_tokens + waiting.output_tokens - waiting.cached_tokens
        decode = self.options.output_weight * (waiting.max_new_tokens - waiting.output_tokens)
        ratio = (view.now - waiting.arrival) / np.maximum(prefill + decode, 1)
        return np.lexsort((waiting.uid, -ratio))


@hookimpl
def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
    return HighestResponseRatioNext(options_of(context, HrrnOptions))
