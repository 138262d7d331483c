"""The record of decisions: a ring of the newest steps that is always kept, and what it means for each request's life.

The parts that decide tell it in passing; nothing is decided from it. A step costs a few numbers and no loop over running
requests; the waiting ones that were looked at are told of one by one. A request that waits is not touched at all: rounds are
counted by the reason why they ended, and the difference between two moments is what it waited for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import SchedulerView
from jackfield.hookspecs.decisions import (
    WAIT_NUMBERS,
    Advance,
    PassedOver,
    RequestLife,
    Retraction,
    StepDecision,
    WaitReason,
)
from jackfield.ipc.messages import FinishReason, TokenizedGenerateRequest
from jackfield.managers.scheduler.batch import ScheduleBatch, StepInFlight
from jackfield.managers.scheduler.lives import PLACE, Life, Lives
from jackfield.managers.scheduler.request import Request
from jackfield.managers.scheduler.running import RunningTable

_Pass = tuple[int, WaitReason, tuple[int, ...]]


class StepEntry:
    """One round in the ring; fields as in `StepDecision`. repeats: further rounds in a row in which likewise nobody could
    run."""

    __slots__ = (
        "at",
        "cached",
        "candidates",
        "commit_s",
        "decide_s",
        "decodes",
        "evictable",
        "faults",
        "free",
        "launch_s",
        "overdue",
        "passed",
        "prefills",
        "repeats",
        "retracted",
        "running",
        "step",
        "stopped",
        "tokens",
        "total_s",
        "waiting",
    )

    step: int
    at: float
    prefills: tuple[int, ...]
    tokens: tuple[int, ...]
    cached: dict[int, int] | None
    decodes: int
    passed: list[_Pass] | None
    stopped: _Pass | None
    overdue: tuple[int, ...]
    candidates: tuple[int, ...]
    retracted: list[Retraction] | None
    faults: list[str] | None

    def __init__(self, step: int, view: SchedulerView, waiting: int, running: int, decide_s: float) -> None:
        self.step = step
        self.at = view.now
        self.free = view.free
        self.evictable = view.evictable
        self.waiting = waiting
        self.running = running
        self.decide_s = decide_s
        self.launch_s = self.commit_s = self.total_s = 0.0
        self.repeats = 0
        self.decodes = 0
        self.prefills = self.tokens = self.overdue = self.candidates = ()
        self.cached = self.passed = self.stopped = self.retracted = self.faults = None

    def decision(self) -> StepDecision:
        cached = self.cached or {}
        return StepDecision(
            step=self.step,
            at=self.at,
            waiting=self.waiting,
            running=self.running,
            free=self.free,
            evictable=self.evictable,
            candidates=self.candidates,
            overdue=self.overdue,
            chosen=tuple(
                Advance(uid=uid, tokens=tokens, cached=cached.get(uid))
                for uid, tokens in zip(self.prefills, self.tokens, strict=True)
            ),
            decodes=self.decodes,
            passed=tuple(_told(one) for one in self.passed or ()),
            stopped=None if self.stopped is None else _told(self.stopped),
            retracted=tuple(self.retracted or ()),
            faults=tuple(self.faults or ()),
            decide_s=self.decide_s,
            launch_s=self.launch_s,
            commit_s=self.commit_s,
            total_s=self.total_s,
        )


class DecisionLog:
    """steps   how many rounds the ring holds; 0 keeps no record at all, which is for measuring what it costs
    ended     how many ended requests' lives are kept
    rich      somebody wants whole decisions: candidates are kept, and `committed` returns what to tell
    lives_wanted   somebody wants the lives of those that end: `take_lives` gives them

    Calls of one round, in any order: `considered`, `passed`, `stopped`, `retracted`, `fault`; `decided` ends it.
    """

    def __init__(self, *, steps: int, ended: int, rich: bool = False, lives_wanted: bool = False) -> None:
        self._rich = rich and steps > 0
        self._on = steps > 0
        self._ring: deque[StepEntry] = deque(maxlen=steps)
        self._lives = Lives(ended)
        self._lives_wanted = lives_wanted
        self._told: list[RequestLife] = []
        self._untold: deque[StepEntry] = deque(maxlen=steps)
        self._rounds = [0] * len(WaitReason)
        self._stalls = 0
        self._step = 0
        self._clear()

    def _clear(self) -> None:
        self._passed: list[_Pass] | None = None
        self._stopped: _Pass | None = None
        self._overdue: tuple[int, ...] = ()
        self._candidates: tuple[int, ...] = ()
        self._retracted: list[Retraction] | None = None
        self._faults: list[str] | None = None
        self._eventful = False

    # ---- requests

    def arrived(self, request: Request, message: TokenizedGenerateRequest, waiting: int, running: int) -> None:
        """waiting, running: requests before it."""
        if not self._on:
            return
        life = Life(message, uid=request.uid, max_new_tokens=request.max_new_tokens, arrived=request.arrival)
        life.seen = tuple(self._rounds)
        life.tell("arrived", self._step, request.arrival, waiting=waiting, running=running)
        self._lives.open(life)

    def refused(self, message: TokenizedGenerateRequest, reason: FinishReason, now: float) -> None:
        """It never got in."""
        if not self._on:
            return
        life = Life(message, uid=0, max_new_tokens=message.sampling.max_new_tokens, arrived=now)
        life.finish = reason
        life.tell("refused", self._step, now, message=reason.message, status_code=reason.status_code)
        self._finish(life)

    def gated(self, request: Request, gate: str, now: float) -> None:
        """A gate is closed to it: it is not among those that wait for a place."""
        if (life := self._lives.get(request.uid)) is not None:
            life.gate = gate
            life.seen = None
            life.tell("gated", self._step, now, gate=gate)

    def opened(self, request: Request, now: float) -> None:
        """It is past the gate."""
        if (life := self._lives.get(request.uid)) is not None:
            life.gate = ""
            life.seen = tuple(self._rounds)
            life.tell("opened", self._step, now)

    def ended(self, request: Request, finish: FinishReason, now: float) -> None:
        life = self._lives.get(request.uid)
        if life is None:
            return
        outputs = len(request.output_ids)
        if outputs and not life.first_token:
            self._first_token(life, self._step, now)
        waits = life.settle(self._rounds)
        told: dict[str, Any] = {"type": finish.type, "outputs": outputs, "rounds": waits}
        told["stalled"] = self._stalls - life.stalled if life.first_token else 0
        for name in ("matched", "message", "status_code"):
            if (value := getattr(finish, name)) is not None:
                told[name] = value
        life.finish = finish
        life.tell("ended", self._step, now, **told)
        self._finish(life)

    def _finish(self, life: Life) -> None:
        self._lives.end(life)
        if self._lives_wanted:
            self._told.append(life.as_data(self._rounds))

    def take_lives(self) -> list[RequestLife]:
        """Of those that ended since the last call."""
        lives, self._told = self._told, []
        return lives

    def _first_token(self, life: Life, step: int, now: float) -> None:
        life.first_token = step
        life.stalled = self._stalls
        life.tell("first_token", step, now)

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

    def stalled(self) -> None:
        """Requests that could decode stand in this step, because prompts are computed."""
        self._stalls += 1

    def retracted(self, request: Request, for_uid: int, now: float) -> None:
        """It gave its memory back, for the waiting request `for_uid` or (0) for running ones, and waits again."""
        if not self._on:
            return
        self._eventful = True
        outputs = len(request.output_ids)
        if self._retracted is None:
            self._retracted = []
        self._retracted.append(Retraction(uid=request.uid, for_uid=for_uid, outputs=outputs))
        life = self._lives[request.uid]
        life.seen = tuple(self._rounds)
        life.tell("retracted", self._step, now, for_uid=for_uid, outputs=outputs)

    def fault(self, error: Exception) -> None:
        """The policy failed at something, and the step goes on without it."""
        self._eventful = True
        if self._faults is None:
            self._faults = []
        self._faults.append(f"{type(error).__name__}: {error}")

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
        if batch is not None:
            entry.decodes = len(batch.uids) - batch.prefills
            if batch.admitted:
                entry.cached = self._admitted(batch, running, view.now)
            if batch.prefills:
                entry.prefills = tuple(batch.uids[: batch.prefills].tolist())
                entry.tokens = tuple(batch.new_tokens[: batch.prefills].tolist())
                for uid, tokens in zip(entry.prefills, entry.tokens, strict=True):
                    self._lives[uid].chunk(batch.step, tokens)
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
        if self._rich and batch is None:
            self._untold.append(entry)

    def _admitted(self, batch: ScheduleBatch, running: RunningTable, now: float) -> dict[int, int]:
        """Who got a row in this round; uid -> tokens out of the cache."""
        first = batch.prefills - len(batch.admitted)
        at, _ = running.locate(batch.rows[first : batch.prefills], batch.uids[first : batch.prefills])
        last = self._ring[-1].stopped if self._ring else None
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
            life = self._lives[uid]
            waits = life.settle(self._rounds)
            told: dict[str, Any] = {"cached": computed, "known": known, "skips": skips, "rounds": waits}
            if waits and last is not None:
                told["last_round"] = _plain(last)
            life.tell("admitted", batch.step, now, **told)
        return cached

    def _repeats(self) -> bool:
        """Whether nobody could run for the same reason as in the round before."""
        last = self._ring[-1] if self._ring else None
        if last is None or last.step or self._faults or self._retracted or self._passed or last.passed:
            return False
        if last.stopped != self._stopped:
            return False
        last.repeats += 1
        return True

    def _count(self, waiting: int) -> None:
        stopped = None if self._stopped is None else PLACE[self._stopped[1]]
        if stopped is not None and waiting:
            self._rounds[stopped] += 1
        if stopped is not None:
            for retraction in self._retracted or ():
                if (life := self._lives.get(retraction.uid)) is not None and life.seen is not None:
                    life.waits[stopped] -= 1  # it did not wait yet in the round that took it back
        for uid, reason, _ in self._passed or ():
            life = self._lives[uid]
            life.waits[PLACE[reason]] += 1
            if stopped is not None:
                life.waits[stopped] -= 1  # it was looked at: it did not wait for what ended the round

    # ---- the step goes on

    def launched(self, step: int, seconds: float) -> None:
        if (entry := self._entry(step)) is not None:
            entry.launch_s = seconds

    def committing(self, step: int) -> None:
        """Its results are applied now: what ends, ends by it."""
        self._step = step

    def committed(self, step: StepInFlight, began: float, now: float) -> list[StepDecision]:
        """After the results were applied, which began at `began`. Returns what observers are to hear; nothing unless rich."""
        if step.batch.prefills:
            for request in step.requests[: step.batch.prefills].tolist():
                life = self._lives.get(request.uid)
                if life is not None and request.output_ids and not life.first_token:
                    self._first_token(life, step.batch.step, now)
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
        lives = [life.as_data(self._rounds) for life in self._lives.find(name)]
        for life in lives:
            if life["state"] == "waiting" and last is not None and last.stopped is not None:
                life["last_round"] = _plain(last.stopped) | {"step": last.step}
        return {
            "requests": lives,
            "ring": {"steps": len(steps), "first": min(steps, default=0), "last": max(steps, default=0)},
            "ended_kept": self._lives.kept,
        }


def _numbers(reason: WaitReason, numbers: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(WAIT_NUMBERS.get(reason, ()), numbers, strict=True))


def _told(one: _Pass) -> PassedOver:
    uid, reason, numbers = one
    return PassedOver(uid=uid, reason=reason, numbers=_numbers(reason, numbers))


def _plain(one: _Pass) -> dict[str, Any]:
    uid, reason, numbers = one
    return {"reason": reason.value, "uid": uid, **_numbers(reason, numbers)}
