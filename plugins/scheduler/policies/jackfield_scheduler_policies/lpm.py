"""Schedule policy `lpm`: longest prefix match. Who has most of its prompt in the cache goes first, so that cached prefixes are
used before they are evicted.

Prefixes that share nothing yet are held back by the core while one of them is computed, under any policy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from jackfield.hookspecs import PolicyContext, RequestTable, SchedulePolicy, SchedulerView, hookimpl
from jackfield_scheduler_policies.options import options_of


class LpmOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    max_queue: int = Field(4096, ge=0, description="With more waiting requests than this, arrival order.")


class LongestPrefixMatch(SchedulePolicy):
    def __init__(self, options: LpmOptions) -> None:
        self.options = options

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp] | None:
        if len(waiting) > self.options.max_queue:
            return None
        return np.argsort(-waiting.cached_tokens, kind="stable")  # rows stand in arrival order


@hookimpl
def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
    return LongestPrefixMatch(options_of(context, LpmOptions))
