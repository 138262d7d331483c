"""The truth table of health under a virtual clock."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jackfield.entrypoints.health import HealthMonitor
from jackfield.ipc.messages import SchedulerReport
from jackfield.managers.requests.generate_request import GenerateRequest
from jackfield.managers.requests.limits import ReplicaLimits
from jackfield.managers.tokenizer_manager import TokenizerManager
from jackfield.observability.clock import ManualClock
from jackfield.stack.errors import PluginStop


class Setting:
    """A monitor with a limit of 20 s over a replica that the test plays."""

    def __init__(self) -> None:
        self.clock = ManualClock(start=1000.0)
        self.busy_since: float | None = None
        self.faults: dict[str, Any] = {}
        self.monitor = HealthMonitor(self.clock, 20.0, busy_since=lambda: self.busy_since, faults=lambda: self.faults)
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        self.report()

    def report(self) -> None:
        numbers: dict[str, Any] = dict.fromkeys(
            ("running", "waiting", "kv_total", "kv_free", "kv_evictable", "kv_protected", "kv_pending", "kv_held"), 0
        )
        self.monitor.on_report(SchedulerReport(steps=self.steps, **numbers))


@pytest.mark.parametrize(
    ("busy", "step_at", "seconds", "healthy"),
    [
        (False, None, 0, True),
        (False, None, 1e6, True),
        (False, 0, 1e6, True),
        (True, None, 20, True),
        (True, None, 20.1, False),
        (True, 0, 20, True),
        (True, 0, 20.1, False),
        (True, 15, 35, True),
        (True, 15, 35.1, False),
    ],
)
def test_health(busy: bool, step_at: float | None, seconds: float, healthy: bool) -> None:
    """busy: requests are open from time 0; step_at: when a step is reported; seconds: when health is asked."""
    play = Setting()
    play.busy_since = play.clock.now() if busy else None
    if step_at is not None:
        play.clock.advance(step_at)
        play.step()
    play.clock.advance(seconds - (step_at or 0))
    ok, details = play.monitor.status()
    assert ok is healthy
    assert (play.monitor.stalled() is None) is healthy
    assert bool(details["reason"]) is not healthy


def test_work_after_a_long_pause_is_waited_for_from_its_own_beginning() -> None:
    play = Setting()
    play.step()
    play.clock.advance(3600)
    play.busy_since = play.clock.now()
    play.clock.advance(19)
    assert play.monitor.stalled() is None
    play.clock.advance(2)
    assert play.monitor.stalled() == "requests are open, and no step was completed for 21.0 s (limit 20 s)"
    play.step()
    assert play.monitor.stalled() is None


def test_a_report_without_a_step_proves_nothing() -> None:
    play = Setting()
    play.busy_since = play.clock.now()
    play.step()
    play.clock.advance(21)
    play.report()
    assert play.monitor.stalled() is not None


def test_details_name_ill_plugins() -> None:
    play = Setting()
    play.faults = {
        "observer.audit": {"count": 10, "by_scope": {"count": 10}, "last": "OSError", "quarantined": True},
        "schedule_policy.odd": {"count": 2, "by_scope": {"degrade": 2}, "last": "KeyError", "quarantined": False},
    }
    play.step()
    play.clock.advance(3)
    assert play.monitor.status() == (
        True,
        {
            "reason": "",
            "last_step_age_s": 3.0,
            "faults": {"observer.audit": 10, "schedule_policy.odd": 2},
            "quarantined": ["observer.audit"],
            "degraded": ["schedule_policy.odd"],
            "overruns": {},
        },
    )


@pytest.mark.parametrize("error", [None, PluginStop("no"), KeyboardInterrupt()])
def test_a_request_is_open_before_observers_hear_of_it(error: BaseException | None) -> None:
    """One that never returns would else stop every request of a server that calls itself healthy."""
    seen: list[float | None] = []

    def notify(hook: str, **_: Any) -> None:
        seen.append(manager.busy_since)
        if error is not None:
            raise error

    manager = TokenizerManager(
        tokenizer=None,
        limits=ReplicaLimits(context_length=8, total_slots=8, page_size=1, vocab_size=8),
        sampling_defaults={},
        to_scheduler=cast(Any, SimpleNamespace(send=lambda message: None)),
        inbox=cast(Any, None),
        clock=ManualClock(3.0),
        observers=cast(Any, SimpleNamespace(listens=lambda hook: True, notify=notify)),
    )
    with nullcontext() if error is None else pytest.raises(type(error)):
        manager.submit(GenerateRequest(input_ids=[1]))
    assert seen == [3.0]
    assert manager.busy_since == (3.0 if error is None else None)
