"""Who of the waiting requests gets a row now, and how many of its tokens run in this step.

The order is the policy's, behind those that were passed over too often; the limits are the core's, applied to one request
after the other by `examination`. Here a round begins and ends, and requests move from waiting to running.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import Lease, SchedulerView, StepBudget, WaitReason
from jackfield.managers.scheduler.batch import RowDeltas
from jackfield.managers.scheduler.decisions import DecisionLog
from jackfield.managers.scheduler.examination import Candidate, Examination, Fits, Passed, Round
from jackfield.managers.scheduler.hints import PrefixHints
from jackfield.managers.scheduler.hold_back import HoldBack
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.new_token_ratio import NewTokenRatio
from jackfield.managers.scheduler.policy_guard import PolicyGuard
from jackfield.managers.scheduler.preemption import Blocked
from jackfield.managers.scheduler.queue import WaitingQueue
from jackfield.managers.scheduler.request import Request, RequestState
from jackfield.managers.scheduler.running import RunningTable
from jackfield.observability.stages import RequestStage

_NOBODY: NDArray[np.int32] = np.empty(0, dtype=np.int32)


class Admission:
    """chunk     most tokens of one prompt in one step; None: a prompt is never cut
    blocked   who did not fit in the last round, if nobody was admitted in it and the policy may preempt for it
    """

    def __init__(
        self,
        *,
        max_running: int,
        chunk: int | None,
        hints: PrefixHints,
        waiting: WaitingQueue,
        running: RunningTable,
        memory: KVMemory,
        policy: PolicyGuard,
        hold_back: HoldBack,
        deltas: RowDeltas,
        ratio: NewTokenRatio,
        decisions: DecisionLog,
    ) -> None:
        self.blocked: Blocked | None = None
        self._max_running = max_running
        self._hints = hints
        self._waiting = waiting
        self._running = running
        self._memory = memory
        self._policy = policy
        self._hold_back = hold_back
        self._deltas = deltas
        self._ratio = ratio
        self._decisions = decisions
        self._examination = Examination(
            max_running=max_running,
            chunk=chunk,
            waiting=waiting,
            running=running,
            memory=memory,
            policy=policy,
            hold_back=hold_back,
            ratio=ratio,
        )

    def admit(
        self,
        view: SchedulerView,
        budget: StepBudget,
        *,
        tokens: int,
        cuts_left: int,
        alone: bool,
        first: int | None = None,
    ) -> NDArray[np.int32]:
        """Move requests from waiting to running. Returns the tokens that each advances in this step [k]; they are the last
        k rows of the running table, with their row and lease, and no slots yet beyond the lease.

        tokens      prompt tokens that the step has left
        cuts_left   requests whose prompt may still be cut by the budget in this step
        alone       no other prompt is computed in this step: the first may be cut in any case, or one longer than the
                    budget would never run
        first       uid for which others were preempted: it goes before all others
        """
        self.blocked = None
        waiting = self._waiting.table
        if not len(waiting):
            return _NOBODY
        places = min(self._max_running - len(self._running), self._memory.rows.available())
        if tokens <= 0:
            self._decisions.stopped(WaitReason.TOKENS)
            return np.empty(0, dtype=np.int32)
        if places <= 0 and not self._may_preempt():
            full = self._examination.no_place()
            self._decisions.stopped(full.reason, *full.numbers)
            return np.empty(0, dtype=np.int32)
        self._hints.renew()
        if self._hints.wants_forest:
            view = replace(view, forest=self._hints.forest())
        order, forced, passed = self._order(view, first)
        self._decisions.considered(waiting["uid"], order, forced)
        self._hints.ordered(order)
        turn = Round(
            view=view,
            tokens_left=tokens,
            places_left=places,
            cuts_left=cuts_left,
            alone=alone,
            promised=self._running.promised(self._ratio.value, self._memory.page_size),
            reserved=0
            if (window := self._memory.window) is None
            else window.reserved(self._running, self._ratio.value),
        )
        self._choose(order, forced, max(budget.candidates, forced), turn, passed)
        return self._enter(turn, passed, view.now)

    def _may_preempt(self) -> bool:
        """Whether any waiting request is more urgent than any running one, and the policy chooses victims."""
        if not self._policy.preempts or not len(self._running):
            return False
        return bool(self._waiting.table["priority"].max() > self._running["priority"].min())

    def _order(self, view: SchedulerView, first: int | None) -> tuple[NDArray[np.intp], int, NDArray[np.bool_]]:
        """(waiting rows in the order in which they are tried, how many of them are forced to the front, bool [waiting] of
        those that the policy left out)."""
        waiting = self._waiting.table
        forced = self._waiting.overdue()
        if first is not None:
            row = self._waiting.find(first)
            forced = np.concatenate([[row], forced[forced != row]])
        order = self._policy.order(waiting.view, view)
        left_out = np.zeros(len(waiting), dtype=np.bool_)
        if order is None:
            order = np.arange(len(waiting))
        elif len(order) < len(waiting):
            left_out[:] = True
            left_out[order] = False
        if len(forced):
            left_out[forced] = False  # they are tried whatever the policy says, so nobody passes over them
            order = np.concatenate([forced, order[~np.isin(order, forced)]])
        return order, len(forced), left_out

    def _choose(self, order: NDArray[np.intp], forced: int, most: int, turn: Round, passed: NDArray[np.bool_]) -> None:
        """Try the first `most` of the order, until the round is over. Marks in `passed` who was passed over."""
        requests, told = self._waiting.table["request"], self._decisions
        candidates = order[:most].tolist()
        for place, row in enumerate(candidates):
            request: Request = requests[row]
            verdict = self._examination.examine(Candidate(row=row, request=request, forced=place < forced), turn)
            if isinstance(verdict, Fits):
                turn.take(row, verdict)
                self._hold_back.watch(request, verdict.lease.length)
            elif isinstance(verdict, Passed):
                told.passed(request.uid, verdict.reason, *verdict.numbers)
                passed[row] = True
            else:
                told.stopped(verdict.reason, *verdict.numbers, uid=request.uid)
                self.blocked = verdict.blocked
                if verdict.reason is WaitReason.HELD:
                    passed[order[place:]] = True
                return
        if len(candidates) < len(order):
            told.stopped(WaitReason.CANDIDATES, len(candidates))
        elif len(order) < len(requests):
            told.stopped(WaitReason.LEFT_OUT, len(requests) - len(order))

    def _enter(self, turn: Round, passed: NDArray[np.bool_], now: float) -> NDArray[np.int32]:
        """Those that the round took move to the running table."""
        if not turn.rows:
            if turn.places_left > 0:
                self._waiting.count_skips(passed, 0)
            return np.empty(0, dtype=np.int32)
        self._examination.admitted()
        rows = np.array(turn.rows, dtype=np.intp)
        stay = np.ones(len(passed), dtype=np.bool_)
        stay[rows] = False
        columns = self._waiting.take(rows)
        self._waiting.count_skips(passed[stay], int(columns["uid"].max()))
        self._open_rows(columns, turn.leases, now)
        self._running.extend(columns)
        self._running.reindex()
        return np.array(turn.tokens, dtype=np.int32)

    def _open_rows(self, columns: dict[str, NDArray[Any]], leases: list[Lease], now: float) -> None:
        """Each request gets its row, with the leased slots in it."""
        memory = self._memory
        np.minimum(columns["started"], now, out=columns["started"])
        for i, (request, lease) in enumerate(zip(columns["request"].tolist(), leases, strict=True)):
            request.row = row = memory.rows.alloc()
            request.lease = lease
            request.state = RequestState.RUNNING
            request.times.enter(RequestStage.PREFILL, now)
            memory.rows.write(row, 0, lease.slots[: lease.length])
            self._deltas.open(request.row_open())
            columns["row"][i] = row
            if request.cached_tokens is None:
                request.cached_tokens = lease.length
            for name in ("computed", "written", "cached_tokens", "allocated"):
                columns[name][i] = lease.length
            columns["goal"][i] = len(request.known_key.tokens)
            columns["floor"][i] = 0 if memory.window is None else memory.window.floor(lease.length)
