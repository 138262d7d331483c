"""Who of the waiting requests gets a row now, and how many of its tokens run in this step.

The order is the policy's; the limits are the core's, applied after it: places, tokens of the step, KV memory for all known
tokens and a share of the outputs to come, hold-back of twins, and the bound on being passed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import HOLD, Chosen, Lease, SchedulerView, StepBudget, WaitReason
from jackfield.managers.scheduler.batch import RowDeltas
from jackfield.managers.scheduler.decisions import DecisionLog
from jackfield.managers.scheduler.hints import PrefixHints
from jackfield.managers.scheduler.hold_back import HoldBack
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.new_token_ratio import NewTokenRatio
from jackfield.managers.scheduler.policy_guard import PolicyGuard
from jackfield.managers.scheduler.preemption import Blocked
from jackfield.managers.scheduler.queue import WaitingQueue
from jackfield.managers.scheduler.refusal import Refusal
from jackfield.managers.scheduler.request import Request, RequestState
from jackfield.managers.scheduler.running import RunningTable, expected_end
from jackfield.mem_cache.accounting import round_down, round_up
from jackfield.observability.stages import RequestStage


@dataclass
class _Round:
    """What one round of admission has taken, and what is left to take. forced: how many at the front of the order go first
    whatever the policy or a twin says."""

    tokens_left: int
    places_left: int
    cuts_left: int
    alone: bool
    promised: int
    forced: int
    passed: NDArray[np.bool_]
    rows: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)

    def chosen(self) -> Chosen:
        return Chosen(rows=np.array(self.rows, dtype=np.intp), tokens=np.array(self.tokens, dtype=np.int32))


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
        self._refused: Refusal | None = None
        self._max_running = max_running
        self._chunk = chunk
        self._hints = hints
        self._waiting = waiting
        self._running = running
        self._memory = memory
        self._policy = policy
        self._hold_back = hold_back
        self._deltas = deltas
        self._ratio = ratio
        self._decisions = decisions

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
        places = min(self._max_running - len(self._running), self._memory.rows.available())
        if not len(waiting):
            return np.empty(0, dtype=np.int32)
        if tokens <= 0:
            self._decisions.stopped(WaitReason.TOKENS)
            return np.empty(0, dtype=np.int32)
        if places <= 0 and not self._may_preempt():
            self._no_place()
            return np.empty(0, dtype=np.int32)
        self._hints.renew()
        if self._hints.wants_forest:
            view = replace(view, forest=self._hints.forest())
        forced = self._waiting.overdue()
        if first is not None:
            row = self._waiting.find(first)
            forced = np.concatenate([[row], forced[forced != row]])
        order = self._policy.order(waiting.view, view)
        passed = np.zeros(len(waiting), dtype=np.bool_)
        if order is None:
            order = np.arange(len(waiting))
        elif len(order) < len(waiting):
            passed[:] = True
            passed[order] = False
        if len(forced):
            order = np.concatenate([forced, order[~np.isin(order, forced)]])
        self._decisions.considered(waiting["uid"], order, len(forced))
        self._hints.ordered(order)
        turn = _Round(
            tokens_left=tokens,
            places_left=places,
            cuts_left=cuts_left,
            alone=alone,
            promised=int(self._running.promises(self._ratio.value, self._memory.page_size).sum()),
            forced=len(forced),
            passed=passed,
        )
        self._choose(order, view, budget, turn)
        return self._enter(turn, view.now)

    def _no_place(self, uid: int = 0, chosen: int = 0) -> None:
        self._decisions.stopped(WaitReason.PLACES, len(self._running) + chosen, self._max_running, uid=uid)

    def _may_preempt(self) -> bool:
        """Whether any waiting request is more urgent than any running one, and the policy chooses victims."""
        if not self._policy.preempts or not len(self._running):
            return False
        return bool(self._waiting.table["priority"].max() > self._running["priority"].min())

    def _choose(self, order: NDArray[np.intp], view: SchedulerView, budget: StepBudget, turn: _Round) -> None:
        waiting, memory = self._waiting.table, self._memory
        requests, told = waiting["request"], self._decisions
        candidates = order[: max(budget.candidates, turn.forced)].tolist()
        for place, row in enumerate(candidates):
            request: Request = requests[row]
            if not turn.tokens_left:
                told.stopped(WaitReason.TOKENS, uid=request.uid)
                return
            if turn.places_left <= 0 and turn.rows:
                self._no_place(request.uid, len(turn.rows))
                return
            length = len(request.known_key.tokens)
            limit = round_down(request.most_cached(length), memory.page_size)
            if place >= turn.forced and self._hold_back.active:
                cached = min(int(memory.peek([request.known_key])[0]), limit)
                if self._hold_back.blocks(request, cached):
                    told.passed(request.uid, WaitReason.TWIN, cached)
                    turn.passed[row] = True
                    continue
            whole_need, available = self._need(request), memory.available()
            if self._still_refused(request.uid, length, whole_need, available, turn):
                return
            lease = memory.acquire(request.known_key, limit)
            need = whole_need - lease.length
            missing = length - lease.length
            first = turn.alone and not turn.rows
            if self._chunk is None:
                whole = missing <= turn.tokens_left or first
            else:
                whole = missing <= min(turn.tokens_left, self._chunk)
            cuttable = self._chunk is not None and (turn.cuts_left > 0 or first)
            left = memory.available()
            lacking = need + turn.promised - left
            if turn.places_left <= 0 or (lacking > 0 and not self._runs_alone(length, lease, turn)):
                if self._policy.preempts and not turn.rows and (whole or cuttable):
                    self.blocked = Blocked(
                        uid=request.uid,
                        row=row,
                        priority=request.priority,
                        lacking=lacking,
                        cached=lease.slots[: lease.length].copy(),
                    )
                memory.release(lease)
                if turn.places_left <= 0:
                    self._no_place(request.uid)
                else:
                    self._refused = Refusal(
                        uid=request.uid,
                        known=length,
                        changes=memory.changes,
                        cached=lease.length,
                        locked=memory.available() - left,
                    )
                    self._no_memory(request.uid, need, turn)
                return  # the first who does not fit waits at the head: memory that comes free is not taken from under it
            if whole:
                count = most = missing  # one that is longer than the step runs alone
            elif self._chunk is not None:
                count = most = min(missing, turn.tokens_left, self._chunk)
            else:
                memory.release(lease)
                told.stopped(WaitReason.CUTS, missing, turn.tokens_left, uid=request.uid)
                return
            if self._policy.takes and place >= turn.forced:
                count = self._policy.take(row, most, waiting.view, turn.chosen(), view)
            if count == HOLD:
                memory.release(lease)
                turn.passed[order[place:]] = True
                told.stopped(WaitReason.HELD, uid=request.uid)
                return
            if count == 0 or (count < missing and self._chunk is None):
                memory.release(lease)
                turn.passed[row] = True
                told.passed(request.uid, WaitReason.PASSED)
                continue
            if count < missing:
                if turn.cuts_left <= 0 and (turn.rows or not turn.alone):
                    memory.release(lease)
                    told.stopped(WaitReason.CUTS, missing, count, uid=request.uid)
                    return
                turn.cuts_left -= 1
            turn.rows.append(row)
            turn.tokens.append(count)
            turn.leases.append(lease)
            turn.tokens_left = max(0, turn.tokens_left - count)
            turn.places_left -= 1
            turn.promised += need
            self._hold_back.watch(request, lease.length)
        if len(candidates) < len(order):
            told.stopped(WaitReason.CANDIDATES, len(candidates))
        elif len(order) < len(waiting):
            told.stopped(WaitReason.LEFT_OUT, len(waiting) - len(order))

    def _still_refused(self, uid: int, known: int, need: int, available: int, turn: _Round) -> bool:
        """Whether it is plain without a look-up that this request, which did not fit before, does not fit now."""
        if (
            self._refused is None
            or self._policy.preempts
            or turn.rows
            or turn.places_left <= 0
            or not len(self._running)
        ):
            return False
        changes, promised = self._memory.changes, turn.promised
        refused = self._refused
        if not refused.lacking(uid, known, changes, need=need, promised=promised, available=available):
            return False
        self._no_memory(uid, need - refused.cached, turn)
        return True

    def _no_memory(self, uid: int, need: int, turn: _Round) -> None:
        free = self._memory.free_slots()
        self._decisions.stopped(WaitReason.MEMORY, need, free, self._memory.available() - free, turn.promised, uid=uid)

    def _need(self, request: Request) -> int:
        """Slots that the request is expected to take in the end, whole pages."""
        known = np.array([len(request.known_key.tokens)], dtype=np.int32)
        left = np.array([request.max_new_tokens - len(request.output_ids)], dtype=np.int32)
        return round_up(
            int(expected_end(known, left, self._ratio.value, self._running.per_row)[0]), self._memory.page_size
        )

    def _runs_alone(self, length: int, lease: Lease, turn: _Round) -> bool:
        """Something must always be able to run: if nothing does, what is known is enough."""
        if len(self._running) or turn.rows:
            return False
        return round_up(length, self._memory.page_size) - lease.length <= self._memory.available()

    def _enter(self, turn: _Round, now: float) -> NDArray[np.int32]:
        if not turn.rows:
            if turn.places_left > 0:
                self._waiting.count_skips(turn.passed, 0)
            return np.empty(0, dtype=np.int32)
        self._refused = None  # what others hold now is not locked for it alone
        rows = np.array(turn.rows, dtype=np.intp)
        stay = np.ones(len(turn.passed), dtype=np.bool_)
        stay[rows] = False
        columns = self._waiting.take(rows)
        self._waiting.count_skips(turn.passed[stay], int(columns["uid"].max()))
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
