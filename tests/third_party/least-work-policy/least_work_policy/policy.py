"""Schedule policy `least-work`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import PolicyContext, RequestTable, SchedulePolicy, SchedulerView, hookimpl
from least_work_policy.options import LeastWorkOptions


class LeastWork(SchedulePolicy):
    def __init__(self, options: LeastWorkOptions) -> None:
        self.options = options

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        """By priority, then by work, then by age; all columns at once."""
        prefill = waiting.prompt_tokens + waiting.output_tokens - waiting.cached_tokens
        decode = self.options.output_weight * (waiting.max_new_tokens - waiting.output_tokens)
        waited = view.now - waiting.arrival
        work = prefill + decode - self.options.patience * waited
        return np.lexsort((waiting.uid, work, -waiting.priority.astype(np.int64)))


@hookimpl
def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
    if not isinstance(context.options, LeastWorkOptions):
        raise TypeError(f"options of another plugin: {context.options!r}")
    return LeastWork(context.options)
