"""One round of deciding as the ring holds it: compact, and made into a `StepDecision` only when somebody asks."""

from __future__ import annotations

from typing import Any, TypeAlias

from jackfield.hookspecs import SchedulerView
from jackfield.hookspecs.decisions import WAIT_NUMBERS, Advance, PassedOver, Retraction, StepDecision, WaitReason

Pass: TypeAlias = tuple[int, WaitReason, tuple[int, ...]]
"""(uid, or 0 if it is about nobody; why; the numbers that `WAIT_NUMBERS` names)."""


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
        "epoch",
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
    passed: list[Pass] | None
    stopped: Pass | None
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
        self.epoch = 0
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
            epoch=self.epoch,
            decide_s=self.decide_s,
            launch_s=self.launch_s,
            commit_s=self.commit_s,
            total_s=self.total_s,
        )


def _numbers(reason: WaitReason, numbers: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(WAIT_NUMBERS.get(reason, ()), numbers, strict=True))


def _told(one: Pass) -> PassedOver:
    uid, reason, numbers = one
    return PassedOver(uid=uid, reason=reason, numbers=_numbers(reason, numbers))


def plain(one: Pass) -> dict[str, Any]:
    """As JSON has it."""
    uid, reason, numbers = one
    return {"reason": reason.value, "uid": uid, **_numbers(reason, numbers)}
