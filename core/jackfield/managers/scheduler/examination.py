"""Whether one waiting request gets a row now: the core's rules and the policy's word, one below the other, in a typed
verdict. What becomes of a verdict is `admission`'s; here nothing moves, and a request that does not fit leaves no lease.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import HOLD, Chosen, Lease, SchedulerView, WaitReason
from jackfield.managers.scheduler.hold_back import HoldBack
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.new_token_ratio import NewTokenRatio
from jackfield.managers.scheduler.policy_guard import PolicyGuard
from jackfield.managers.scheduler.preemption import Blocked
from jackfield.managers.scheduler.queue import WaitingQueue
from jackfield.managers.scheduler.refusal import Refusal
from jackfield.managers.scheduler.request import Request
from jackfield.managers.scheduler.running import RunningTable, expected_end
from jackfield.mem_cache.accounting import round_down, round_up


@dataclass(frozen=True, kw_only=True, slots=True)
class Fits:
    """It gets a row.

    tokens  that it advances in this step, at least 1
    cut     they are not all that its prompt lacks
    lease   on its cached prefix, held
    need    slots that it is expected to take beyond the lease, whole pages
    narrow  slots of the window pool that it may have at a time
    """

    tokens: int
    cut: bool
    lease: Lease
    need: int
    narrow: int = 0


@dataclass(frozen=True, slots=True)
class Passed:
    """It waits on, and the next one is looked at. numbers: as `WAIT_NUMBERS` names them."""

    reason: WaitReason
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """It waits on, and so does everybody behind it. blocked: for whom the policy may preempt."""

    reason: WaitReason
    numbers: tuple[int, ...] = ()
    blocked: Blocked | None = None


Verdict: TypeAlias = Fits | Passed | Stop


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """row: of the waiting table; forced: it goes first whatever the policy or a twin says."""

    row: int
    request: Request
    forced: bool

    @property
    def known(self) -> int:
        """Tokens that are computed before it decodes."""
        return len(self.request.known_key.tokens)


@dataclass(kw_only=True)
class Round:
    """What one round of admission has taken, and what is left to take.

    promised   slots that running and taken requests may still take
    reserved   slots of the window pool that they may have at a time
    alone      no other prompt is computed in this step: the first may be cut in any case, or one longer than the budget would
               never run
    """

    view: SchedulerView
    tokens_left: int
    places_left: int
    cuts_left: int
    alone: bool
    promised: int
    reserved: int = 0
    rows: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)

    def take(self, row: int, fits: Fits) -> None:
        self.rows.append(row)
        self.tokens.append(fits.tokens)
        self.leases.append(fits.lease)
        self.tokens_left = max(0, self.tokens_left - fits.tokens)  # one that is longer than the step runs alone
        self.cuts_left -= fits.cut
        self.places_left -= 1
        self.promised += fits.need
        self.reserved += fits.narrow

    @property
    def first_alone(self) -> bool:
        """Whoever is taken now has the step for itself so far."""
        return self.alone and not self.rows

    def chosen(self) -> Chosen:
        return Chosen(rows=np.array(self.rows, dtype=np.intp), tokens=np.array(self.tokens, dtype=np.int32))


class Examination:
    """chunk   most tokens of one prompt in one step; None: a prompt is never cut"""

    def __init__(
        self,
        *,
        max_running: int,
        chunk: int | None,
        waiting: WaitingQueue,
        running: RunningTable,
        memory: KVMemory,
        policy: PolicyGuard,
        hold_back: HoldBack,
        ratio: NewTokenRatio,
    ) -> None:
        self._max_running = max_running
        self._chunk = chunk
        self._waiting = waiting
        self._running = running
        self._memory = memory
        self._policy = policy
        self._hold_back = hold_back
        self._ratio = ratio
        self._refused: Refusal | None = None

    def admitted(self) -> None:
        """Somebody got a row: what others hold now is not locked for who did not fit alone."""
        self._refused = None

    def no_place(self, chosen: int = 0) -> Stop:
        return Stop(WaitReason.PLACES, (len(self._running) + chosen, self._max_running))

    def examine(self, candidate: Candidate, turn: Round) -> Verdict:
        """The rules in their order; the first that applies decides."""
        request, memory = candidate.request, self._memory
        if not turn.tokens_left:
            return Stop(WaitReason.TOKENS)
        if turn.places_left <= 0 and turn.rows:
            return self.no_place(len(turn.rows))
        limit = round_down(request.most_cached(candidate.known), memory.page_size)
        if self._hold_back.active and not candidate.forced:
            cached = min(int(memory.peek([request.known_key])[0]), limit)
            if self._hold_back.blocks(request, cached):
                return Passed(WaitReason.TWIN, (cached,))
        whole_need = self._need(request)
        if (refused := self._still_refused(candidate, whole_need, turn)) is not None:
            return refused
        lease = memory.acquire(request.known_key, limit)
        need = whole_need - lease.length
        narrow = self._narrow(candidate, lease, whole_need)
        if turn.places_left <= 0 or self._lacks_memory(candidate, lease, need, narrow, turn):
            return self._refuse(candidate, lease, need, narrow, turn)
        verdict = self._share(candidate, lease, need, narrow, turn)
        if not isinstance(verdict, Fits):
            memory.release(lease)
        return verdict

    # how many tokens it gets

    def _share(self, candidate: Candidate, lease: Lease, need: int, narrow: int, turn: Round) -> Verdict:
        """There is room for it: how many of its tokens run, by the step's budget and the policy's wish."""
        missing = candidate.known - lease.length
        if self._runs_whole(missing, turn):
            most = missing
        elif self._chunk is not None:
            most = min(missing, turn.tokens_left, self._chunk)
        else:
            return Stop(WaitReason.CUTS, (missing, turn.tokens_left))
        count = most
        if self._policy.takes and not candidate.forced:
            count = self._policy.take(candidate.row, most, self._waiting.table.view, turn.chosen(), turn.view)
        if count == HOLD:
            return Stop(WaitReason.HELD)
        cut = count < missing
        if count == 0 or (cut and self._chunk is None):
            return Passed(WaitReason.PASSED)
        if cut and not self._may_cut(turn):
            return Stop(WaitReason.CUTS, (missing, count))
        return Fits(tokens=count, cut=cut, lease=lease, need=need, narrow=narrow)

    def _runs_whole(self, missing: int, turn: Round) -> bool:
        if self._chunk is None:
            return missing <= turn.tokens_left or turn.first_alone
        return missing <= min(turn.tokens_left, self._chunk)

    def _may_cut(self, turn: Round) -> bool:
        return turn.cuts_left > 0 or turn.first_alone

    # whether there is room

    def _need(self, request: Request) -> int:
        """Slots that the request is expected to take in the end, whole pages."""
        known = np.array([len(request.known_key.tokens)], dtype=np.int32)
        left = np.array([request.max_new_tokens - len(request.output_ids)], dtype=np.int32)
        end: NDArray[np.int32] = expected_end(known, left, self._ratio.value, self._running.per_row)
        return round_up(int(end[0]), self._memory.page_size)

    def _narrow(self, candidate: Candidate, lease: Lease, whole_need: int) -> int:
        """Slots of the window pool that the request may have at a time."""
        window = self._memory.window
        if window is None:
            return 0
        missing = candidate.known - lease.length
        return window.need(whole_need - window.floor(lease.length), missing, self._running.per_row)

    def _narrow_lacking(self, narrow: int, turn: Round) -> int:
        window = self._memory.window
        return 0 if window is None else narrow + turn.reserved - window.pool.total

    def _lacks_memory(self, candidate: Candidate, lease: Lease, need: int, narrow: int, turn: Round) -> bool:
        available = self._memory.available()
        if need + turn.promised <= available and self._narrow_lacking(narrow, turn) <= 0:
            return False
        # Something must always be able to run: if nothing does, what is known is enough.
        alone = not len(self._running) and not turn.rows
        return not alone or round_up(candidate.known, self._memory.page_size) - lease.length > available

    def _still_refused(self, candidate: Candidate, need: int, turn: Round) -> Stop | None:
        """If it is plain without a look-up that this request, which did not fit before, does not fit now."""
        refused, memory = self._refused, self._memory
        if refused is None or self._policy.preempts or turn.rows or turn.places_left <= 0 or not len(self._running):
            return None
        if not refused.lacking(
            candidate.request.uid,
            candidate.known,
            memory.changes,
            need=need,
            promised=turn.promised,
            available=memory.available(),
        ):
            return None
        return self._no_memory(need - refused.cached, turn)

    def _refuse(self, candidate: Candidate, lease: Lease, need: int, narrow: int, turn: Round) -> Stop:
        """The first who does not fit waits at the head: memory that comes free is not taken from under it."""
        request, memory = candidate.request, self._memory
        left = memory.available()
        blocked = None
        can_run = self._runs_whole(candidate.known - lease.length, turn) or (
            self._chunk is not None and self._may_cut(turn)
        )
        if self._policy.preempts and not turn.rows and can_run:
            blocked = Blocked(
                uid=request.uid,
                row=candidate.row,
                priority=request.priority,
                lacking=need + turn.promised - left,
                window_lacking=self._narrow_lacking(narrow, turn),
                cached=lease.slots[: lease.length].copy(),
            )
        memory.release(lease)
        if turn.places_left <= 0:
            stop = self.no_place()
        else:
            self._refused = Refusal(
                uid=request.uid,
                known=candidate.known,
                changes=memory.changes,
                cached=lease.length,
                locked=memory.available() - left,
            )
            stop = self._no_memory(need, turn)
        return Stop(stop.reason, stop.numbers, blocked)

    def _no_memory(self, need: int, turn: Round) -> Stop:
        free = self._memory.free_slots()
        return Stop(WaitReason.MEMORY, (need, free, self._memory.available() - free, turn.promised))
