"""Shortest prompt first, and what it saw of the steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from jackfield.hookspecs import (
    Amounts,
    Chosen,
    DecodeTurn,
    PolicyContext,
    RequestTable,
    SchedulePolicy,
    SchedulerView,
    StepBudget,
    StepRecord,
    hookimpl,
)


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")

    most: int = 64


class ShortestFirst(SchedulePolicy):
    def __init__(self, most: int, total: int) -> None:
        self.most = most
        self.total = total
        self.advanced = 0

    def start(self, waiting: RequestTable, running: RequestTable, view: SchedulerView) -> None:
        if len(waiting) + len(running) or view.total != self.total:
            raise ValueError("nobody can be there before the first step")

    def budget(self, view: SchedulerView) -> StepBudget:
        return StepBudget(prefill_tokens=min(self.most, view.max_prefill), decode=DecodeTurn.MIX)

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp] | None:
        return np.lexsort((waiting.uid, waiting.prompt_tokens))

    def take(self, row: int, most: int, waiting: RequestTable, chosen: Chosen, view: SchedulerView) -> int:
        return most if len(chosen.rows) < view.max_running else 0

    def victims(
        self, running: RequestTable, need: Amounts, for_row: int | None, view: SchedulerView
    ) -> NDArray[np.intp]:
        return np.argsort(-running.arrival, kind="stable")

    def observe(self, record: StepRecord) -> None:
        self.advanced += int(record.tokens.sum())


@hookimpl
def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
    if not isinstance(context.options, Options):
        raise TypeError(f"options of another plugin: {context.options!r}")
    return ShortestFirst(context.options.most, context.total_slots)
