"""Kind `schedule_policy`: who runs next, with how many tokens, and whom to retract."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs.common import Amounts, PluginContext
from jackfield.hookspecs.markers import hookspec
from jackfield.hookspecs.tables import RequestTable, SchedulerView

HOLD = -1
"""Returned by `take`: stop here, look at no further waiting request in this step."""


class DecodeTurn(enum.Enum):
    """Where running requests stand against waiting ones.

    AFTER   prefill first: a step with prefill work holds no decodes (SGLang's default order)
    FIRST   running requests decode first; prefill gets a step only when nothing decodes
    MIX     one batch of both
    """

    AFTER = "after"
    FIRST = "first"
    MIX = "mix"


@dataclass(frozen=True, kw_only=True)
class StepBudget:
    """What this step may spend.

    prefill_tokens    most prompt tokens to compute; None: the core's own limit
    decode            see `DecodeTurn`
    partial_prefills  most requests whose prompt may be cut by the budget at one time
    candidates        most waiting requests that `take` is asked about
    """

    prefill_tokens: int | None = None
    decode: DecodeTurn = DecodeTurn.AFTER
    partial_prefills: int = 1
    candidates: int = 256


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What this step has taken so far. rows: waiting rows, in order [k]; tokens: tokens for each [k]."""

    rows: NDArray[np.intp]
    tokens: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """What in fact happened in one step, told after its commit.

    admitted, finished, retracted, aborted   uids
    uids, tokens       who was in the batch, and how many tokens each advanced [n]
    started, ended     seconds on the scheduler's clock: launch and commit
    prefills           how many of `uids`, at the front, computed prompt tokens; the others decoded
    tenants            the tenant's code of each of `uids`, int32 [n]
    open_tenants       distinct codes of all who wait or run after the step, ascending, int32
    """

    step: int
    started: float
    ended: float
    uids: NDArray[np.int64]
    tokens: NDArray[np.int32]
    admitted: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()
    retracted: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()
    prefills: int = 0
    tenants: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    open_tenants: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))


class SchedulePolicy(ABC):
    """Override what you mean to change; only `order` is required.

    No clock, global random generator, thread or I/O in here: time is `view.now`, randomness `view.seed`.
    `order`, `budget`, `take` and `victims` change nothing; `observe` alone may change the policy's own state.
    A fault in any of them degrades that step to arrival order and is counted.
    """

    def start(self, waiting: RequestTable, running: RequestTable, view: SchedulerView) -> None:  # noqa: B027
        """Called once before the first step, and again after a live swap with what is there then."""

    def budget(self, view: SchedulerView) -> StepBudget:
        """What this step may spend. Called once a step, before `order`."""
        return StepBudget()

    @abstractmethod
    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp] | None:
        """Distinct valid rows of `waiting` in the order in which they should be tried, perhaps fewer than all.

        None means arrival order, which is how the rows stand. Called only when somebody waits and a place is free.
        """

    def take(self, row: int, most: int, waiting: RequestTable, chosen: Chosen, view: SchedulerView) -> int:
        """How many tokens of this waiting request to run now: 0 passes it over, `HOLD` stops here, `most` is the most.

        `HOLD` comes from `jackfield.hookspecs`. Called only if overridden, for at most `StepBudget.candidates` rows a step.
        """
        return most

    def victims(
        self, running: RequestTable, need: Amounts, for_row: int | None, view: SchedulerView
    ) -> NDArray[np.intp]:
        """Rows of `running` to retract, the first first, until `need` is met; empty means do not preempt.

        for_row is the row of `view.waiting` that wants the memory or, where `need` is 0, a place; or None when running
        requests themselves need memory: then the core takes the newest admitted first if the answer does not suffice, and
        keeps at least one request running. For a waiting request the core drops rows whose priority is not strictly lower
        than its own, and those that were passed over as often as anybody may be; and if what is left does not suffice,
        nobody is retracted. Called only if overridden, and for a waiting request only if a lower priority runs.
        """
        return np.empty(0, dtype=np.intp)

    def observe(self, record: StepRecord) -> None:  # noqa: B027
        """What happened. Called once a step after its commit, only if overridden."""


@dataclass(frozen=True, kw_only=True)
class PolicyContext(PluginContext):
    """max_running, page_size, total_slots: the replica's limits, as in `SchedulerView`."""

    max_running: int
    page_size: int
    total_slots: int


class SchedulePolicySpecs:
    @hookspec
    def jackfield_schedule_policy(self, context: PolicyContext) -> SchedulePolicy:  # type: ignore[empty-body]
        """Make the policy.

        Process: scheduler. When: once at start, before the first request, and once more at a live swap.
        Cost: any. Example:

            @hookimpl
            def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
                from my_package.policy import ShortestFirst

                return ShortestFirst()
        """
