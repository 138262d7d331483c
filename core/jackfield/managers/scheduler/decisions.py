"""The record of decisions: a ring of the newest steps that is always kept, and what it means for each request's life.

The parts that decide tell it in passing; nothing is decided from it. A step costs a few numbers and no loop over running
requests; the waiting ones that were looked at are told of one by one. What requests live through is `life_log`'s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import SchedulerView, StackChanged
from jackfield.hookspecs.decisions import Retraction, StepDecision, WaitReason
from jackfield.managers.scheduler.batch import ScheduleBatch, StepInFlight
from jackfield.managers.scheduler.life_log import LifeLog
from jackfield.managers.scheduler.request import Request
from jackfield.managers.scheduler.running import RunningTable
from jackfield.managers.scheduler.step_entry import Pass, StepEntry, plain
from jackfield.stack.runtime.faults import named

MAX_SWAPS = 32
"""Swaps of the policy that are told of, the newest."""


class DecisionLog:
    """steps   how many rounds the ring holds; 0 keeps no record at all, which is for measuring what it costs
    ended     how many ended requests' lives are kept
    rich      somebody wants whole decisions: candidates are kept, and `committed` returns what to tell
    lives_wanted   somebody wants the lives of those that end: `lives.take` gives them
    lives     what requests are told one by one
    epoch     of the stack whose policy decides now

    Calls of one round, in any order: `considered`, `passed`, `stopped`, `retracted`, `fault`; `decided` ends it.
    """

    def __init__(self, *, steps: int, ended: int, rich: bool = False, lives_wanted: bool = False) -> None:
        self._rich = rich and steps > 0
        self._on = steps > 0
        self.epoch = 0
        self._swaps: deque[dict[str, Any]] = deque(maxlen=MAX_SWAPS)
        self.lives = LifeLog(ended=ended, on=self._on, wanted=lives_wanted)
        self._ring: deque[StepEntry] = deque(maxlen=steps)
        self._untold: deque[StepEntry] = deque(maxlen=steps)
        self._clear()

    def _clear(self) -> None:
        self._passed: list[Pass] | None = None
        self._stopped: Pass | None = None
        self._overdue: tuple[int, ...] = ()
        self._candidates: tuple[int, ...] = ()
        self._retracted: list[Retraction] | None = None
        self._faults: list[str] | None = None
        self._eventful = False

    # ---- a round

    def considered(self, uids: NDArray[np.int64], order: NDArray[np.intp], overdue: int) -> None:
        """Admission begins, perhaps anew: waiting requests are tried in this order, rows of `uids`; the first `overdue`
        because they waited too long, or others gave way for them."""
        self._passed = self._stopped = None
        if overdue:
            self._eventful = True
            self._overdue = tuple(uids[order[:overdue]].tolist())
        if self._rich:
            self._eventful = True
            self._candidates = tuple(uids[order].tolist())

    def passed(self, uid: int, reason: WaitReason, *numbers: int) -> None:
        """This request was looked at and left where it is. numbers: as `WAIT_NUMBERS` names them."""
        self._eventful = True
        if self._passed is None:
            self._passed = []
        self._passed.append((uid, reason, numbers))

    def stopped(self, reason: WaitReason, *numbers: int, uid: int = 0) -> None:
        """The round looks at nobody any more. uid: at whom it ended."""
        self._eventful = True
        self._stopped = (uid, reason, numbers)

    def retracted(self, request: Request, for_uid: int, now: float) -> None:
        """It gave its memory back, for the waiting request `for_uid` or (0) for running ones, and waits again."""
        if not self._on:
            return
        self._eventful = True
        outputs = len(request.output_ids)
        if self._retracted is None:
            self._retracted = []
        self._retracted.append(Retraction(uid=request.uid, for_uid=for_uid, outputs=outputs))
        self.lives.retracted(request, for_uid, outputs, now)

    def fault(self, error: BaseException) -> None:
        """The policy failed at something, and the step goes on without it."""
        self._eventful = True
        if self._faults is None:
            self._faults = []
        self._faults.append(named(error))

    def decided(
        self, batch: ScheduleBatch | None, view: SchedulerView, running: RunningTable, waiting: int, now: float
    ) -> None:
        """The round's end, at `now`. running, waiting: after it."""
        if not self._on:
            self._clear()
            return
        if batch is None and (not self._eventful or self._repeats()):
            self._count(waiting)
            self._clear()
            return
        entry = StepEntry(0 if batch is None else batch.step, view, waiting, len(running), now - view.now)
        entry.epoch = self.epoch
        if batch is not None:
            entry.decodes = len(batch.uids) - batch.prefills
            if batch.admitted:
                entry.cached = self._admitted(batch, running, view.now)
            if batch.prefills:
                entry.prefills = tuple(batch.uids[: batch.prefills].tolist())
                entry.tokens = tuple(batch.new_tokens[: batch.prefills].tolist())
                for uid, tokens in zip(entry.prefills, entry.tokens, strict=True):
                    self.lives.chunk(uid, batch.step, tokens)
        if self._eventful:
            entry.passed = self._passed
            entry.stopped = self._stopped
            if self._stopped is not None and self._stopped[1] is WaitReason.TOKENS:
                entry.stopped = (self._stopped[0], WaitReason.TOKENS, (sum(entry.tokens),))
            entry.overdue = self._overdue
            entry.candidates = self._candidates
            entry.retracted = self._retracted
            entry.faults = self._faults
            self._count(waiting)
            self._clear()
        self._ring.append(entry)
        self.lives.last = entry.stopped
        if self._rich and batch is None:
            self._untold.append(entry)

    def _admitted(self, batch: ScheduleBatch, running: RunningTable, now: float) -> dict[int, int]:
        """Who got a row in this round; uid -> tokens out of the cache."""
        first = batch.prefills - len(batch.admitted)
        at, _ = running.locate(batch.rows[first : batch.prefills], batch.uids[first : batch.prefills])
        stopped = self._ring[-1].stopped if self._ring else None
        last = None if stopped is None else plain(stopped)
        cached = {}
        # Nothing is launched yet: what is computed came out of the cache, also after a retraction.
        for uid, computed, known, skips in zip(
            batch.admitted,
            running["computed"][at].tolist(),
            running["goal"][at].tolist(),
            running["skips"][at].tolist(),
            strict=True,
        ):
            cached[uid] = computed
            self.lives.admitted(uid, batch.step, now, last, cached=computed, known=known, skips=skips)
        return cached

    def _repeats(self) -> bool:
        """Whether nobody could run for the same reason as in the round before."""
        last = self._ring[-1] if self._ring else None
        if last is None or last.step or self._faults or self._retracted or self._passed or last.passed:
            return False
        if last.stopped != self._stopped or last.epoch != self.epoch:
            return False
        last.repeats += 1
        return True

    def _count(self, waiting: int) -> None:
        retracted = [one.uid for one in self._retracted or ()]
        self.lives.count(self._stopped, self._passed or (), retracted, anybody_waits=waiting > 0)

    def swapped(self, change: StackChanged) -> None:
        """Between two rounds another policy took over."""
        self.epoch = change.epoch
        self._swaps.append(
            {
                "epoch": change.epoch,
                "step": change.step,
                "policy": change.instance,
                "previous": change.previous,
                "stack_hash": change.stack_hash,
            }
        )
        self.lives.swapped(change)

    # ---- the step goes on

    def launched(self, step: int, seconds: float) -> None:
        if (entry := self._entry(step)) is not None:
            entry.launch_s = seconds

    def committing(self, step: int) -> None:
        """Its results are applied now: what ends, ends by it."""
        self.lives.step = step

    def committed(self, step: StepInFlight, began: float, now: float) -> list[StepDecision]:
        """After the results were applied, which began at `began`. Returns what observers are to hear; nothing unless rich."""
        if step.batch.prefills:
            for request in step.requests[: step.batch.prefills].tolist():
                self.lives.advanced(request, step.batch.step, now)
        if (entry := self._entry(step.batch.step)) is None:
            return []
        entry.commit_s = now - began
        entry.total_s = now - entry.at
        if not self._rich:
            return []
        told = [other.decision() for other in self._untold if other.at <= entry.at]
        for _ in told:
            self._untold.popleft()
        return [*told, entry.decision()]

    def _entry(self, step: int) -> StepEntry | None:
        for entry in reversed(self._ring):
            if entry.step == step:
                return entry
            if 0 < entry.step < step:
                return None
        return None

    # ---- questions

    def entries(self) -> list[StepDecision]:
        """What the ring holds, oldest first."""
        return [entry.decision() for entry in self._ring]

    def why(self, name: str) -> dict[str, Any]:
        """The lives of the requests known under this name, and what is kept at all, as plain values."""
        steps: Sequence[int] = [entry.step for entry in self._ring if entry.step]
        last = next((entry for entry in reversed(self._ring)), None)
        lives = self.lives.find(name)
        for life in lives:
            if life["state"] == "waiting" and last is not None and last.stopped is not None:
                life["last_round"] = plain(last.stopped) | {"step": last.step}
        return {
            "requests": lives,
            "ring": {"steps": len(steps), "first": min(steps, default=0), "last": max(steps, default=0)},
            "ended_kept": self.lives.kept,
            "epoch": self.epoch,
            "swaps": list(self._swaps),
        }
