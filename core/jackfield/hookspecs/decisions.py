"""What the scheduler decided in one step and why not otherwise, as observers are told of it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class WaitReason(enum.Enum):
    """Why a waiting request did not get in. Numbers that come with each stand in `WAIT_NUMBERS`.

    Of a whole round of admission, for all whom it did not reach:
    DECODES_FIRST   the policy's budget lets running requests decode first
    PLACES          as many run as may (`--max-running-requests`, or rows of the worker)
    TOKENS          the step's prompt tokens are spent
    MEMORY          the KV memory does not suffice for the request at the head
    CUTS            the next prompt would have to be cut, and as many are cut already as the budget allows
    HELD            the policy's `take` returned HOLD
    CANDIDATES      as many were looked at as the budget allows
    LEFT_OUT        the policy's `order` left them out
    RETRACTING      running requests lack memory, or the next request takes some of theirs: some give theirs back, for which
                    first no step may be in flight

    Of one request, which the round passed over:
    PASSED          the policy's `take` returned 0
    TWIN            a running prefill computes the same tokens just now, which it will find in the cache
    """

    DECODES_FIRST = "decodes_first"
    PLACES = "places"
    TOKENS = "tokens"
    MEMORY = "memory"
    CUTS = "cuts"
    HELD = "held"
    CANDIDATES = "candidates"
    LEFT_OUT = "left_out"
    RETRACTING = "retracting"
    PASSED = "passed"
    TWIN = "twin"


WAIT_NUMBERS: Mapping[WaitReason, tuple[str, ...]] = {
    WaitReason.PLACES: ("running", "most"),
    WaitReason.TOKENS: ("taken",),
    WaitReason.MEMORY: ("needed", "free", "evictable", "promised"),
    WaitReason.CUTS: ("missing", "left"),
    WaitReason.CANDIDATES: ("looked_at",),
    WaitReason.LEFT_OUT: ("left_out",),
    WaitReason.RETRACTING: ("needed", "free", "evictable"),
    WaitReason.TWIN: ("cached",),
}
"""Names of `PassedOver.numbers`. All but counts of requests are tokens; needed, free, evictable and promised are KV slots,
needed for the request at the head on top of what is promised to running ones."""


@dataclass(frozen=True, kw_only=True)
class PassedOver:
    """One request that was looked at and did not get in; uid 0: the round ended without looking at another."""

    uid: int
    reason: WaitReason
    numbers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Advance:
    """One request of the batch with prompt tokens to compute.

    tokens   how many in this step
    cached   how many came out of the cache, if the request was admitted in this step, else None
    """

    uid: int
    tokens: int
    cached: int | None = None


@dataclass(frozen=True, kw_only=True)
class Retraction:
    """A running request that gave its memory back. for_uid: for whom, 0: for running requests; outputs: tokens it had."""

    uid: int
    for_uid: int
    outputs: int


@dataclass(frozen=True, kw_only=True)
class StepDecision:
    """One round of deciding, told after its step's commit; step 0: nobody could run.

    at                    seconds on the scheduler's clock at which it was decided
    waiting, running      requests after the decision
    free, evictable       KV slots before it
    candidates            uids of the waiting requests in the order in which they were to be tried
    overdue               those of them that stood first because they had been passed over too often
    chosen                who computes prompt tokens; decodes: how many others run
    passed                who was looked at and did not get in
    stopped               why the round looked at no further one; None: everybody was looked at, or nobody waits
    retracted             who gave memory back since the round before
    faults                what the policy did wrong, where the step went on in arrival order instead
    epoch                 of the stack whose policy was asked
    decide_s, launch_s, commit_s, total_s   seconds: deciding, launching, applying the result, decision to commit
    """

    step: int
    at: float
    waiting: int
    running: int
    free: int
    evictable: int
    candidates: tuple[int, ...] = ()
    overdue: tuple[int, ...] = ()
    chosen: tuple[Advance, ...] = ()
    decodes: int = 0
    passed: tuple[PassedOver, ...] = ()
    stopped: PassedOver | None = None
    retracted: tuple[Retraction, ...] = ()
    faults: tuple[str, ...] = ()
    epoch: int = 0
    decide_s: float = 0.0
    launch_s: float = 0.0
    commit_s: float = 0.0
    total_s: float = 0.0


RequestLife = Mapping[str, Any]
"""A request's life as plain values, as `jackfield why --json` prints it: id, also_known_as, uid, state ("waiting" | "gated" |
"running" | "finished"), prompt_tokens, max_new_tokens, waiting_for (reason -> rounds of the wait under way), events_forgotten,
and events in order, each with event, step and at (seconds on the scheduler's clock) and its own numbers. Keys may be added."""
