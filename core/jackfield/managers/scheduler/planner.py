"""Decides one step: which prefills continue, who is admitted, who decodes, and the slots that all of them need."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import DecodeTurn, SchedulerView, StepBudget, Want
from jackfield.managers.scheduler.admission import Admission
from jackfield.managers.scheduler.batch import ScheduleBatch
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.policy_guard import PolicyGuard
from jackfield.managers.scheduler.running import RunningTable

_NOBODY: NDArray[np.intp] = np.empty(0, dtype=np.intp)


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

    def plan(self, view: SchedulerView, want: Want, step: int) -> ScheduleBatch | None:
        """The next batch, its slots in place; None if nothing can run."""
        running = self._running
        budget = self._policy.budget(view)
        decoding = running.decoding() if want is not Want.PREFILL else _NOBODY
        mixed = budget.decode is DecodeTurn.MIX
        prefilling, tokens, admitted = _NOBODY, np.empty(0, dtype=np.int32), 0
        decode_first = budget.decode is DecodeTurn.FIRST or (
            not mixed and self._prefills_in_a_row >= self._max_prefills
        )
        if want is Want.PREFILL or (want is Want.ANY and not (len(decoding) and decode_first)):
            room = self._max_tokens - (len(decoding) if mixed else 0)
            prefilling, tokens, admitted = self._prefill(view, budget, room)
        rows = prefilling
        if len(decoding) and (mixed or not len(prefilling)):
            # Admission appends to the table, so that rows found before it still stand where they stood.
            rows = np.concatenate([prefilling, decoding])
            tokens = np.concatenate([tokens, np.ones(len(decoding), dtype=np.int32)])
        if not len(rows):
            return None
        ends = running["computed"][rows] + tokens
        most = None
        if self._per_row > 1:
            most = np.ones(len(rows), dtype=np.int32)
            left = running["max_new_tokens"][rows] - running["sampled"][rows]
            most[len(prefilling) :] = np.minimum(left, self._per_row)[len(prefilling) :]
            ends += most - 1
        self._memory.grow(running, rows, ends)
        self._prefills_in_a_row = self._prefills_in_a_row + 1 if len(decoding) and len(rows) == len(prefilling) else 0
        uids = running["uid"][rows]
        first_admitted = len(prefilling) - admitted
        return ScheduleBatch(
            step=step,
            rows=running["row"][rows],
            uids=uids,
            new_tokens=tokens,
            prefills=len(prefilling),
            admitted=tuple(uids[first_admitted : len(prefilling)].tolist()),
            most=most,
        )

    def _prefill(
        self, view: SchedulerView, budget: StepBudget, room: int
    ) -> tuple[NDArray[np.intp], NDArray[np.int32], int]:
        """Rows that compute prompt tokens, how many each, and how many of the rows were admitted just now.

        Prompts that are cut go on first: they hold memory, and others may wait for their prefix.
        """
        running = self._running
        left = min(
            self._max_prefill if budget.prefill_tokens is None else budget.prefill_tokens, self._max_prefill, room
        )
        rows = running.prefilling()
        missing = running.remaining()[rows]
        tokens = self._shares(missing, left)
        left = max(0, left - int(tokens.sum()))
        cuts = int(np.count_nonzero(tokens < missing))
        rows, tokens = rows[tokens > 0], tokens[tokens > 0]
        before = len(running)
        new_tokens = self._admission.admit(
            view, budget, tokens=left, cuts_left=budget.partial_prefills - cuts, alone=not len(rows)
        )
        new_rows = np.arange(before, before + len(new_tokens))
        return np.concatenate([rows, new_rows]), np.concatenate([tokens, new_tokens]), len(new_tokens)

    def _shares(self, missing: NDArray[np.int32], left: int) -> NDArray[np.int32]:
        """How many of their missing tokens these rows compute with `left` tokens to spend, the first row first [n]."""
        if self._chunk is None:
            whole = np.cumsum(missing) <= left
            whole[:1] = left > 0  # one that is longer than the step runs alone
            return np.where(whole, missing, 0).astype(np.int32)
        wanted = np.minimum(missing, self._chunk)
        shares: NDArray[np.int32] = np.clip(left - (np.cumsum(wanted) - wanted), 0, wanted).astype(np.int32)
        return shares
