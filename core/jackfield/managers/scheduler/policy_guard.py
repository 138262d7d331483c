"""The policy plugin as the scheduler calls it: answers are checked, faults degrade that one decision to arrival order and
are booked. Knows no queue and no memory."""

from __future__ import annotations

import operator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import (
    HOLD,
    Amounts,
    Chosen,
    DecodeTurn,
    FaultScope,
    RequestTable,
    SchedulePolicy,
    SchedulerView,
    StepBudget,
    StepRecord,
)
from jackfield.managers.scheduler.decisions import DecisionLog
from jackfield.managers.scheduler.watchers import Ledger
from jackfield.stack.errors import PLUGIN_ERRORS
from jackfield.stack.runtime.metering import Meter

_DEFAULT_BUDGET = StepBudget()


class BadPolicyAnswer(Exception):
    """A policy returned something that its contract does not allow."""


class PolicyGuard:
    """takes, preempts, observes: whether the policy overrides `take`, `victims` and `observe`; called only then."""

    def __init__(self, policy: SchedulePolicy, ledger: Ledger, name: str, decisions: DecisionLog, meter: Meter) -> None:
        self._ledger = ledger
        self._meter = meter
        self._decisions = decisions
        self.swap(policy, name)

    def swap(self, policy: SchedulePolicy, name: str) -> None:
        """From now on this one is asked; name: its key in the ledger. Whoever swaps has started it."""
        self._policy = self.metered(policy, name)
        self._name = name
        self.takes = type(policy).take is not SchedulePolicy.take
        self.preempts = type(policy).victims is not SchedulePolicy.victims
        self.observes = type(policy).observe is not SchedulePolicy.observe

    def take_over(self, policy: SchedulePolicy, name: str) -> None:
        """As `swap`, and what another policy did under this name is not held against it."""
        self._ledger.begin_anew(name)
        self.swap(policy, name)

    def metered(self, policy: SchedulePolicy, name: str) -> SchedulePolicy:
        """The same object; its calls are counted and timed from now on."""
        return self._meter.watch(name, policy)

    def start(self, waiting: RequestTable, running: RequestTable, view: SchedulerView) -> None:
        """A policy that cannot start must not serve: its error stops the start."""
        try:
            self._policy.start(waiting, running, view)
        except PLUGIN_ERRORS as error:
            self._ledger.record(self._name, FaultScope.STOP, error)
            raise

    def budget(self, view: SchedulerView) -> StepBudget:
        """The policy's budget; the default one after a fault."""
        try:
            budget = self._policy.budget(view)
            if not isinstance(budget, StepBudget):
                raise BadPolicyAnswer(f"budget returned a {type(budget).__name__}, not a StepBudget")
            return checked_budget(budget)
        except PLUGIN_ERRORS as error:
            self._fault(error)
            return _DEFAULT_BUDGET

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp] | None:
        """Distinct valid rows, or None for arrival order; None after a fault."""
        try:
            answer = self._policy.order(waiting, view)
            return None if answer is None else checked_rows("order", answer, len(waiting))
        except PLUGIN_ERRORS as error:
            self._fault(error)
            return None

    def take(self, row: int, most: int, waiting: RequestTable, chosen: Chosen, view: SchedulerView) -> int:
        """0 .. most, or HOLD; `most` after a fault."""
        try:
            tokens = operator.index(self._policy.take(row, most, waiting, chosen, view))
            if tokens != HOLD and not 0 <= tokens <= most:
                raise BadPolicyAnswer(f"take returned {tokens}; 0 .. {most} or HOLD is allowed")
            return tokens
        except PLUGIN_ERRORS as error:
            self._fault(error)
            return most

    def victims(
        self, running: RequestTable, need: Amounts, for_row: int | None, view: SchedulerView
    ) -> NDArray[np.intp]:
        """Distinct valid rows of `running`; none after a fault, and none of a policy that does not choose."""
        if not self.preempts:
            return np.empty(0, dtype=np.intp)
        try:
            return checked_rows("victims", self._policy.victims(running, need, for_row, view), len(running))
        except PLUGIN_ERRORS as error:
            self._fault(error)
            return np.empty(0, dtype=np.intp)

    def observe(self, record: StepRecord) -> None:
        try:
            self._policy.observe(record)
        except PLUGIN_ERRORS as error:
            self._fault(error)

    def _fault(self, error: BaseException) -> None:
        self._decisions.fault(error)
        self._ledger.record(self._name, FaultScope.DEGRADE, error)


def checked_budget(budget: StepBudget) -> StepBudget:
    """The budget with plain ints, so that a float or NaN does not come to light where it ends the replica.

    Raises TypeError for those, BadPolicyAnswer for numbers that cannot be.
    """
    made = budget
    numbers = [budget.candidates, budget.partial_prefills]
    if budget.prefill_tokens is not None:
        numbers.append(budget.prefill_tokens)
    if any(type(number) is not int for number in numbers):
        made = replace(
            budget,
            prefill_tokens=None if budget.prefill_tokens is None else operator.index(budget.prefill_tokens),
            candidates=operator.index(budget.candidates),
            partial_prefills=operator.index(budget.partial_prefills),
        )
    tokens = made.prefill_tokens
    if (tokens is not None and tokens < 1) or made.candidates < 1 or made.partial_prefills < 0:
        raise BadPolicyAnswer(f"budget returned {budget}: tokens and candidates >= 1, partial_prefills >= 0")
    if not isinstance(made.decode, DecodeTurn):
        raise BadPolicyAnswer(f"budget returned decode={made.decode!r}, which is no DecodeTurn")
    return made


def checked_rows(what: str, answer: object, count: int) -> NDArray[np.intp]:
    """The answer as distinct rows of a table of `count`. Raises BadPolicyAnswer, which names the method `what`."""
    rows = np.asarray(answer)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise BadPolicyAnswer(f"{what} returned {rows.ndim} dimensions of {rows.dtype}; one of integers is allowed")
    rows = rows.astype(np.intp)
    if rows.size and (rows.min() < 0 or rows.max() >= count):
        raise BadPolicyAnswer(f"{what} returned rows {rows.min()} .. {rows.max()} of a table of {count}")
    if np.bincount(rows, minlength=1).max(initial=0) > 1:
        raise BadPolicyAnswer(f"{what} returned a row twice")
    return rows
