"""Schedule policy `lof`: longest output first. Requests that may generate most start first, so that they do not run on alone
when everything else has ended; for batches whose total time counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import PolicyContext, RequestTable, SchedulePolicy, SchedulerView, hookimpl


class LongestOutputFirst(SchedulePolicy):
    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        return np.lexsort((waiting.uid, waiting.output_tokens - waiting.max_new_tokens))


@hookimpl
def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
    return LongestOutputFirst()
