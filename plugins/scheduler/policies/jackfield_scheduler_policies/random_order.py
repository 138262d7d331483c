"""Schedule policy `random`: a new order in every step, drawn from `view.seed`, so that a run with the same seed has the same
orders. The baseline against which a policy that claims to be clever is measured."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import PolicyContext, RequestTable, SchedulePolicy, SchedulerView, hookimpl


class RandomOrder(SchedulePolicy):
    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        return np.random.default_rng(view.seed).permutation(len(waiting)).astype(np.intp, copy=False)


@hookimpl
def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
    return RandomOrder()
