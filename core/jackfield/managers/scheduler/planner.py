"""Decides one step: which prefills continue, who is admitted, who decodes, and the slots that all of them need.

Where the slots for running requests are not there, some of them are retracted first; where a more urgent request waits, it
may take the memory of others. Both happen only while no step is in flight: with steps in flight nothing is planned, and the
loop commits them first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import DecodeTurn, SchedulerView, StepBudget, WaitReason, Want
from jackfield.managers.scheduler.admission import Admission
from jackfield.managers.scheduler.batch import ScheduleBatch
from jackfield.managers.scheduler.decisions import DecisionLog
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.new_token_ratio import NewTokenRatio
from jackfield.managers.scheduler.policy_guard import PolicyGuard
from jackfield.managers.scheduler.preemption import Preemption
from jackfield.managers.scheduler.retraction import Retraction
from jackfield.managers.scheduler.running import RunningTable

_NOBODY: NDArray[np.intp] = np.empty(0, dtype=np.intp)
_NOTHING: NDArray[np.int32] = np.empty(0, dtype=np.int32)


_Measured: TypeAlias = "tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32] | None]"
"""Rows and tokens of a step [n], prefills before decodes; tokens that the rows may hold after it [n]; and the most that each
may give [n], None: one."""


@dataclass(kw_only=True)
class _Draft:
    """A step as far as it is decided.

    decoding    rows that could decode now; mixed: in one batch with prefills
    prefilling  rows that compute tokens known at admission, and how many each: `tokens`; the last `admitted` of them are new
    left, cuts  prompt tokens that the step could still hold, and rows whose prompt is cut in it; None: no prefill at all
    measured    what `Planner` found of it, until somebody is admitted
    """

    decoding: NDArray[np.intp]
    mixed: bool
    prefilling: NDArray[np.intp] = field(default_factory=lambda: _NOBODY)
    tokens: NDArray[np.int32] = field(default_factory=lambda: _NOTHING)
    admitted: int = 0
    left: int | None = None
    cuts: int = 0
    measured: _Measured | None = None

    def batch(self) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
        """Rows and tokens, prefills before decodes."""
        if not len(self.decoding) or (len(self.prefilling) and not self.mixed):
            return self.prefilling, self.tokens
        if not len(self.prefilling):
            return self.decoding, np.ones(len(self.decoding), dtype=np.int32)
        rows = np.concatenate([self.prefilling, self.decoding])
        return rows, np.concatenate([self.tokens, np.ones(len(self.decoding), dtype=np.int32)])


class Planner:
    """max_prefill   most prompt tokens in one step
    max_tokens    most tokens of any kind, the worker's limit
    per_row       most tokens that a decoding row may give in one step, the worker's limit too
    chunk         most tokens of one prompt in one step; None: a prompt is never cut
    max_prefills  steps without decodes that may follow each other while somebody could decode (`DecodeTurn.AFTER`)
    """

    def __init__(
        self,
        *,
        max_prefill: int,
        max_tokens: int,
        chunk: int | None,
        max_prefills: int,
        per_row: int = 1,
        running: RunningTable,
        memory: KVMemory,
        policy: PolicyGuard,
        admission: Admission,
        retraction: Retraction,
        preemption: Preemption,
        ratio: NewTokenRatio,
        decisions: DecisionLog,
    ) -> None:
        self._max_prefill = max_prefill
        self._max_tokens = max_tokens
        self._per_row = per_row
        self._chunk = chunk
        self._max_prefills = max_prefills
        self._prefills_in_a_row = 0
        self._running = running
        self._memory = memory
        self._policy = policy
        self._admission = admission
        self._retraction = retraction
        self._preemption = preemption
        self._ratio = ratio
        self._decisions = decisions

    def plan(self, view: SchedulerView, want: Want, step: int, *, quiet: bool) -> ScheduleBatch | None:
        """The next batch, its slots in place; None if nothing can run, or only after the steps in flight are committed.

        quiet: no step is in flight.
        """
        budget = self._policy.budget(view)
        draft = self._continuing(budget, want)
        retracted = self._retraction.total
        if draft.left is None:
            self._decisions.stopped(WaitReason.DECODES_FIRST)
        elif not len(draft.prefilling) or not self._lacking(draft):
            with_new = self._admit(draft, view, budget, want, quiet=quiet)
            if with_new is None:
                return None
            draft = with_new
        if not draft.admitted:  # what admission promised includes this step
            with_room = self._with_room(draft, view, budget, want, quiet=quiet)
            if with_room is None:
                return None
            draft = with_room
        rows, tokens, ends, most = self._measured(draft)
        if not len(rows):
            return None
        running = self._running
        prefills = len(draft.prefilling)
        self._memory.grow(running, rows, ends)
        decodes = len(rows) > prefills
        stalls = bool(len(draft.decoding)) and not decodes
        self._prefills_in_a_row = self._prefills_in_a_row + 1 if stalls else 0
        if stalls:
            self._decisions.lives.stalled()
        if decodes and self._retraction.total == retracted:
            self._ratio.decoded()
        uids = running["uid"][rows]
        return ScheduleBatch(
            step=step,
            rows=running["row"][rows],
            uids=uids,
            new_tokens=tokens,
            prefills=prefills,
            admitted=tuple(uids[prefills - draft.admitted : prefills].tolist()),
            retracted=self._retraction.take(),
            most=most,
            at=rows,
            changes=running.changes,
        )

    def _continuing(self, budget: StepBudget, want: Want) -> _Draft:
        """The step without anybody new. Prompts that are cut go on first: they hold memory, and others may wait for their
        prefix."""
        running = self._running
        rows = running.prefilling()
        decoding = running.decoding(launched=not len(rows)) if want is not Want.PREFILL else _NOBODY
        draft = _Draft(decoding=decoding, mixed=budget.decode is DecodeTurn.MIX)
        decode_first = budget.decode is DecodeTurn.FIRST or (
            not draft.mixed and self._prefills_in_a_row >= self._max_prefills
        )
        if want is Want.DECODE or (want is Want.ANY and len(decoding) and decode_first):
            return draft
        room = self._max_tokens - (len(decoding) if draft.mixed else 0)
        most = self._max_prefill if budget.prefill_tokens is None else budget.prefill_tokens
        left = min(most, self._max_prefill, room)
        if not len(rows):
            draft.left = max(0, left)
            return draft
        missing = (running["goal"] - running["computed"])[rows]
        tokens = self._shares(missing, left)
        draft.left = max(0, left - int(tokens.sum()))
        draft.cuts = int(np.count_nonzero(tokens < missing))
        draft.prefilling, draft.tokens = rows[tokens > 0], tokens[tokens > 0]
        return draft

    def _admit(
        self, draft: _Draft, view: SchedulerView, budget: StepBudget, want: Want, *, quiet: bool
    ) -> _Draft | None:
        """The draft with those who are admitted, perhaps after a preemption; None if others are to be preempted once the
        steps in flight are committed."""
        self._enter(draft, view, budget)
        blocked = self._admission.blocked
        if blocked is None or not len(victims := self._preemption.victims(blocked, view)):
            return draft
        if not quiet:
            self._decisions.stopped(
                WaitReason.RETRACTING, max(0, blocked.lacking), view.free, view.evictable, uid=blocked.uid
            )
            return None
        self._retraction.retract(victims, blocked.uid, view.now)
        draft = self._continuing(budget, want)
        self._enter(draft, view, budget, first=blocked.uid)
        return draft

    def _enter(self, draft: _Draft, view: SchedulerView, budget: StepBudget, first: int | None = None) -> None:
        before = len(self._running)
        new_tokens = self._admission.admit(
            view,
            budget,
            tokens=draft.left or 0,
            cuts_left=budget.partial_prefills - draft.cuts,
            alone=not len(draft.prefilling),
            first=first,
        )
        draft.admitted = len(new_tokens)
        if not draft.admitted:
            return
        draft.measured = None
        # Admission appends to the table, so that rows found before it still stand where they stood.
        draft.prefilling = np.concatenate([draft.prefilling, np.arange(before, before + len(new_tokens))])
        draft.tokens = np.concatenate([draft.tokens, new_tokens])

    def _shares(self, missing: NDArray[np.int32], left: int) -> NDArray[np.int32]:
        """How many of their missing tokens these rows compute with `left` tokens to spend, the first row first [n]."""
        if self._chunk is None:
            whole = np.cumsum(missing) <= left
            whole[:1] = left > 0  # one that is longer than the step runs alone
            return np.where(whole, missing, 0).astype(np.int32)
        wanted = np.minimum(missing, self._chunk)
        shares: NDArray[np.int32] = np.clip(left - (np.cumsum(wanted) - wanted), 0, wanted).astype(np.int32)
        return shares

    def _measured(self, draft: _Draft) -> _Measured:
        """Looked up once for each state of the draft; nothing of the running table changes meanwhile."""
        if draft.measured is None:
            rows, tokens = draft.batch()
            draft.measured = rows, tokens, *self._ends(rows, tokens, len(draft.prefilling))
        return draft.measured

    def _ends(
        self, rows: NDArray[np.intp], tokens: NDArray[np.int32], prefills: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32] | None]:
        running = self._running
        ends: NDArray[np.int32] = running["computed"][rows] + tokens
        if self._per_row == 1:
            return ends, None
        most = np.ones(len(rows), dtype=np.int32)
        left = running["max_new_tokens"][rows] - running["sampled"][rows]
        most[prefills:] = np.minimum(left, self._per_row)[prefills:]
        most[running["constrained"][rows]] = 1  # a mask is for one token
        return ends + (most - 1), most

    def _lacking(self, draft: _Draft) -> int:
        rows, _, ends, _ = self._measured(draft)
        return self._memory.lacking(self._running, rows, ends) if len(rows) else 0

    def _with_room(
        self, draft: _Draft, view: SchedulerView, budget: StepBudget, want: Want, *, quiet: bool
    ) -> _Draft | None:
        """The draft without those who have to go for its slots; None if steps in flight come first, or if one request is left
        and a copy still holds what it needs. Nobody new is admitted in it: they would take what was just given back.

        A retraction may let others compute more than they did in the draft before, and so lack slots in turn.
        """
        while lacking := self._lacking(draft):
            self._decisions.stopped(WaitReason.RETRACTING, lacking, view.free, view.evictable)
            if not quiet:
                return None
            if len(self._running) == 1:
                return None if self._memory.sizes().pending else draft
            rows, _, ends, _ = self._measured(draft)
            self._retraction.make_room(rows, ends, view)
            draft = self._continuing(budget, want)
        return draft
