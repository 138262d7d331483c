"""Schedule policy `shortest-prefill-first`: the request with the fewest prompt tokens left to compute goes first.

It lowers the mean time to first token, at the cost of long prompts under load; the core bounds how often one of them is
passed over.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import PolicyContext, RequestTable, SchedulePolicy, SchedulerView, hookimpl


class ShortestPrefillFirst(SchedulePolicy):
    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        # Known tokens: the outputs of a retracted request are computed again with its prompt.
        uncached = waiting.prompt_tokens + waiting.output_tokens - waiting.cached_tokens
        return np.lexsort((waiting.uid, uncached))


@hookimpl
def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
    return ShortestPrefillFirst()
