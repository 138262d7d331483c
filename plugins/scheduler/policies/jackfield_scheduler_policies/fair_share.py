"""Schedule policy `fair-share`: each tenant gets the same service while it asks for it, whatever the others send. The virtual
token counter of Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024).

A counter a tenant holds the weighted tokens that it was served; who has the lowest goes first. A tenant that comes back
starts no lower than the lowest counter of those who are there, so that nobody saves up service by staying away. Requests
without a tenant are one tenant. Cached prompt tokens cost nothing, because nothing was computed for them.

The paper's place in the queue is kept up at each arrival; here the counters change in `observe` alone, from what the step
in fact computed, and `order` adds to them what the requests in front would cost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from jackfield.hookspecs import PolicyContext, RequestTable, SchedulePolicy, SchedulerView, StepRecord, hookimpl
from jackfield_scheduler_policies.options import options_of

MAX_ABSENT = 16384
"""Tenants with nothing open that are remembered; names come from clients, so there may be any number of them."""


class FairShareOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt_weight: float = Field(1.0, gt=0, allow_inf_nan=False, description="What a computed prompt token costs.")
    output_weight: float = Field(2.0, gt=0, allow_inf_nan=False, description="What a decoded token costs.")


class FairShare(SchedulePolicy):
    def __init__(self, options: FairShareOptions) -> None:
        self.options = options
        self._tenants = np.empty(0, dtype=np.int32)  # ascending
        self._served = np.empty(0, dtype=np.float64)  # the counter of each
        self._floor = 0.0  # lowest counter of those who were there; none that is remembered is below it

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        tenants, which = np.unique(waiting.tenant, return_inverse=True)
        by_tenant = np.lexsort((waiting.uid, which))
        cost = self.options.prompt_weight * waiting.prompt_tokens[by_tenant]
        before = np.cumsum(cost) - cost  # what stands in front of each request, all tenants; then its own tenant's
        before -= before[np.searchsorted(which[by_tenant], which[by_tenant])]
        counter = np.empty(len(waiting))
        counter[by_tenant] = self._counters(tenants)[which[by_tenant]] + before
        return np.lexsort((waiting.uid, counter))

    def observe(self, record: StepRecord) -> None:
        tenants = np.unique(np.concatenate([self._tenants, record.tenants, record.open_tenants]))
        served = self._counters(tenants)
        weights = np.full(len(record.uids), self.options.output_weight)
        weights[: record.prefills] = self.options.prompt_weight
        np.add.at(served, np.searchsorted(tenants, record.tenants), weights * record.tokens)
        present = np.isin(tenants, record.open_tenants)
        if present.any():
            self._floor = float(served[present].min())
        # The others would start at the floor anyway.
        absent = np.flatnonzero(~present & (served > self._floor))
        if len(absent) > MAX_ABSENT:
            absent = absent[np.argsort(served[absent])[-MAX_ABSENT:]]
        keep = np.sort(np.concatenate([np.flatnonzero(present), absent]))
        self._tenants, self._served = tenants[keep], served[keep]

    def _counters(self, tenants: NDArray[np.int32]) -> NDArray[np.float64]:
        """The counters of these tenants; the floor for those who are not remembered."""
        counters = np.full(len(tenants), self._floor)
        known = np.isin(tenants, self._tenants)
        counters[known] = self._served[np.searchsorted(self._tenants, tenants[known])]
        return counters


@hookimpl
def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
    return FairShare(options_of(context, FairShareOptions))
