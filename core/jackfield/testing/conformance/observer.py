"""The conformance suite of kind `observer`: made and told as a run does it, with the records of a run on the simulated worker.

What it makes of them is its own business. Needs no torch.
"""

from __future__ import annotations

import enum
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jackfield.hookspecs import (
    LIFECYCLE_HOOKS,
    BatchScheduled,
    CacheEvent,
    PassedOver,
    ProcessInfo,
    RequestFinished,
    RequestReceived,
    StackChanged,
    StepDecision,
)
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.observers import ObserverHub
from jackfield.testing.conformance.guards import bytecodes
from jackfield.testing.conformance.policy_tables import made_record
from jackfield.testing.conformance.snapshot import snapshot
from jackfield.testing.conformance.suite import Conformance
from jackfield.testing.scheduler_harness import SchedulerHarness

ROLES = ("inline", "main", "scheduler", "detokenizer")
FEW, MANY = 32, 256
STORED = (
    CacheEvent(action="stored", namespace=b"salt", tokens=(1, 2, 3, 4), length=4),
    CacheEvent(action="removed", namespace=b"salt", tokens=(1, 2, 3, 4), length=4),
    CacheEvent(action="cleared"),
)
CHANGED = StackChanged(
    epoch=1,
    stack_hash="cd" * 32,
    previous_hash="ab" * 32,
    at=9.5,
    step=12,
    kind="schedule_policy",
    name="lpm",
    instance="lpm",
    distribution="jackfield-scheduler-policies",
    version="0.1.0",
    previous="fcfs",
)


LIFE: dict[str, Any] = {
    "id": "r-1",
    "also_known_as": [],
    "uid": 1,
    "state": "finished",
    "prompt_tokens": 3,
    "max_new_tokens": 5,
    "waiting_for": {},
    "events_forgotten": 0,
    "events": [],
}


class Later(enum.Enum):
    """A reason to wait that a later minor version has."""

    LATER = "later"


class Checked:
    """Hands records on to a hub, and holds them against what they were before."""

    def __init__(self, hub: ObserverHub) -> None:
        self.hub = hub
        self.told: set[str] = set()

    def listens(self, hook_name: str) -> bool:
        return self.hub.listens(hook_name)

    def notify(self, hook_name: str, **arguments: Any) -> None:
        before = snapshot(arguments)
        self.hub.notify(hook_name, **arguments)
        self.told.add(hook_name)
        assert snapshot(arguments) == before, f"{hook_name} changed the records that it was told of"


class ObserverConformance(Conformance):
    kind = "observer"

    def process(self, role: str = "inline") -> ProcessInfo:
        return ProcessInfo(role=role, pid=4711, stack_hash="ab" * 32)

    def hub(self, role: str = "inline") -> ObserverHub:
        """The observer as a process of this role has it; any exception out of it is an error."""
        return ObserverHub(self.stack(), FaultLedger("raise"), self.process(role))

    def tell_main(self, told: Any, prompt: str | None = None, text: str | None = None) -> None:
        """What the main process tells of: requests that come and end, in every way."""
        for hook, records in (("received", received(prompt)), ("finished", finished(text))):
            for batch in (records, records[:1]):
                told.notify(f"jackfield_requests_{hook}", requests=batch)

    def tell_scheduler(self, told: Any, requests: int = 8) -> None:
        """A run of a small scheduler with little memory: steps, retractions, aborts, and what the cache did."""
        run = SchedulerHarness(observers=told, total_slots=40, max_running_requests=4, context_length=32)
        rids = [run.submit([n % 3 + 1] * (n % 5 + 2), max_new_tokens=12) for n in range(requests)]
        run.turn()
        run.abort(rids[0])
        run.abort(rids[-1])  # it has not begun
        run.run()
        told.notify("jackfield_requests_retracted", uids=(1, 2))
        told.notify("jackfield_cache_events", events=STORED)
        told.notify("jackfield_stack_changed", stack=CHANGED)

    def test_hears_something(self) -> None:
        """It has one lifecycle hook at least, and each of its hooks is one of the contract's."""
        hub = self.hub()
        heard = [name for name in LIFECYCLE_HOOKS if hub.listens(name)]
        assert heard, "the object that jackfield_observer returned has no lifecycle hook"
        self.measured(f"hooks: {', '.join(heard)}", len(heard))

    @pytest.mark.parametrize("role", ROLES)
    def test_a_run_in_each_process(self, role: str) -> None:
        """Started, told of all that this process tells of, and stopped: no exception, and no record changed."""
        if role != "inline" and role not in self.loaded().selected.processes:
            self.not_claimed(f"processes has no {role!r}")
        hub = self.hub(role)
        hub.started()
        told = Checked(hub)
        if role in ("inline", "main"):
            self.tell_main(told)
        if role in ("inline", "scheduler"):
            self.tell_scheduler(told)
        hub.stopping()

    def test_stops_without_having_heard_anything(self) -> None:
        """A process that ends at once starts it and stops it."""
        hub = self.hub()
        hub.started()
        hub.stopping()

    def test_with_and_without_texts(self) -> None:
        """Prompt and answer are None unless the operator granted them; both are taken, in any script."""
        hub = self.hub()
        hub.started()
        self.tell_main(Checked(hub))
        self.tell_main(Checked(hub), prompt='What is "a\njackfield"? 🐦', text="ñandú \x00 \\")
        hub.stopping()

    def test_takes_words_that_are_new(self) -> None:
        """Reasons, ends, actions and keys that a later minor version adds are told to it too, and are no error."""
        hub = self.hub()
        hub.started()
        passed = PassedOver(uid=1, reason=Later.LATER, numbers={"later": 1})  # type: ignore[arg-type]
        round_ = {"step": 1, "at": 1.0, "waiting": 1, "running": 0, "free": 1, "evictable": 0}
        told: dict[str, dict[str, Any]] = {
            "requests_finished": {
                "requests": [replace(finished("a")[0], rid="r-1", finish_type="later", stage_times={"later": 0.1})]
            },
            "step_decided": {
                "decision": StepDecision(**round_, passed=(passed,), stopped=replace(passed, uid=0))  # type: ignore[arg-type]
            },
            "cache_events": {"events": [CacheEvent(action="later")]},
            "requests_explained": {
                "lives": [LIFE | {"later": 1, "events": [{"event": "later", "step": 1, "at": 1.0}]}]
            },
        }
        for hook, records in told.items():
            try:
                hub.notify(f"jackfield_{hook}", **records)
            except Exception as error:
                cause = error.__cause__ or error
                raise AssertionError(
                    f"jackfield_{hook} fails at a word that it does not know, and should take it as it is: "
                    f"{type(cause).__name__}: {cause}"
                ) from error
        hub.stopping()

    def test_two_uses_are_apart(self) -> None:
        """Used twice in one process: each is started, told and stopped by itself, in whatever order."""
        one, two = self.hub(), self.hub()
        one.started()
        two.started()
        for hub in (one, two):
            self.tell_main(Checked(hub))
        one.stopping()
        self.tell_main(Checked(two))
        two.stopping()

    def test_a_step_of_256_requests(self) -> None:
        """From 32 to 256 requests in a step, its bytecodes grow no faster than the requests."""
        hub = self.hub()
        hub.started()
        counts = []
        for requests in (FEW, MANY):
            batch, record = scheduled(requests), made_record(5, list(range(1, requests + 1)))

            def step(batch: Any = batch, record: Any = record) -> None:
                hub.notify("jackfield_batch_scheduled", batch=batch)
                hub.notify("jackfield_batch_committed", record=record)

            step()
            counts.append(bytecodes(step))
        hub.stopping()
        self.measured(f"bytecodes in a step of {MANY} requests", counts[1])
        assert counts[1] <= 2 * MANY / FEW * max(counts[0], 500), f"{counts} bytecodes for {FEW} and {MANY} requests"


def received(prompt: str | None) -> list[RequestReceived]:
    return [
        RequestReceived(
            rid=f"r-{n} 🐦", received_at=1.5 * n, prompt_tokens=n, max_new_tokens=5, stream=n % 2 == 0, prompt=prompt
        )
        for n in range(4)
    ]


def finished(text: str | None) -> list[RequestFinished]:
    return [
        RequestFinished(
            rid=f"r-{n} 🐦",
            finish_type=finish_type,
            prompt_tokens=n,
            completion_tokens=2 * n,
            cached_tokens=0,
            e2e_latency=0.25,
            stage_times={"queue": 0.1, "prefill": 0.05} if n else {},
            text=text,
        )
        for n, finish_type in enumerate(("stop", "length", "abort", "error"))
    ]


def scheduled(requests: int) -> BatchScheduled:
    return BatchScheduled(
        step=5,
        at=5.0,
        uids=np.arange(1, requests + 1, dtype=np.int64),
        new_tokens=np.ones(requests, dtype=np.int32),
        computed=np.full(requests, 9, dtype=np.int32),
        waiting=3,
        running=requests,
        free_slots=100,
    )
