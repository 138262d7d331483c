"""Calls of plugins are counted and timed where they are wrapped, whatever they do; what overruns its budget is told."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest

from jackfield.hookspecs import FaultScope
from jackfield.stack.errors import PluginStop
from jackfield.stack.runtime.faults import FaultLedger, Foreign
from jackfield.stack.runtime.metering import METHODS, Meter, Rounds, merged

pytestmark = pytest.mark.goal_row(31)


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def row(calls: float, seconds: float, exceptions: float = 0.0, overruns: float = 0.0) -> dict[str, float]:
    return {"calls": calls, "seconds": seconds, "exceptions": exceptions, "overruns": overruns}


def test_a_wrapped_call_is_the_same_call() -> None:
    time = Time()
    meter = Meter(timer=time)

    def work(a: int, *, b: int) -> int:
        """Adds."""
        time.now += 0.5
        return a + b

    metered = meter.wrap("cache.mine", "commit", work)
    assert (metered(1, b=2), metered(3, b=4)) == (3, 7)
    assert (metered.__name__, metered.__doc__) == ("work", "Adds.")
    assert meter.costs() == {"cache.mine": {"commit": row(2, 1.0)}}


def test_exceptions_are_counted_but_for_those_that_are_answers() -> None:
    meter = Meter(timer=Time())

    def late(error: type[BaseException]) -> None:
        raise error

    metered = meter.wrap("worker.w", "result", late, expected=(TimeoutError,))
    for error in (TimeoutError, ValueError, SystemExit, KeyboardInterrupt):
        with pytest.raises(error):
            metered(error)
    assert meter.costs()["worker.w"]["result"] == row(4, 0.0, exceptions=3)


@dataclass(frozen=True)
class Frozen:
    """A gate whose methods are wrapped in place, although it lets nobody set anything."""

    answer: str

    def enter(self, request: Any) -> str:
        return self.answer

    def poll(self) -> list[Any]:
        return [self.enter(None)]


def test_an_object_is_watched_in_place() -> None:
    meter, gate = Meter(timer=Time()), Frozen("open")
    watched = meter.watch("gate.g", gate)
    assert watched is gate
    assert (gate.enter(None), gate.poll()) == ("open", ["open"])
    assert {method: costs["calls"] for method, costs in meter.costs()["gate.g"].items()} == {"enter": 2, "poll": 1}
    assert gate == Frozen("open")


def test_an_object_that_comes_again_is_metered_once_for_who_watched_it_last() -> None:
    meter, gate = Meter(timer=Time()), Frozen("open")
    for _ in range(2000):
        meter.watch("gate.g", gate)
    gate.enter(None)
    assert meter.costs() == {"gate.g": {"enter": row(1, 0.0)}}
    meter.watch("gate.h", gate).enter(None)
    assert meter.costs() == {"gate.g": {"enter": row(1, 0.0)}, "gate.h": {"enter": row(1, 0.0)}}


class Panic(BaseException):
    """As an extension module in another language raises it."""


def test_what_is_no_exception_is_a_fault_like_any_other() -> None:
    meter = Meter(timer=Time())

    def panics() -> None:
        raise Panic("index out of bounds")

    with pytest.raises(Foreign, match="Panic: index out of bounds") as caught:
        meter.wrap("cache.mine", "commit", panics)()
    assert isinstance(caught.value.__cause__, Panic)
    assert meter.costs() == {"cache.mine": {"commit": row(1, 0.0, exceptions=1)}}

    class Closing(Frozen):
        def close(self) -> None:
            panics()

    with pytest.raises(Foreign, match="index out of bounds"):
        meter.watch("gate.g", Closing("open")).close()
    assert "gate.g" not in meter.costs()


def test_what_was_called_before_can_be_forgotten() -> None:
    """As the start's calls of attention are, which are nobody's request."""
    time = Time()
    meter = Meter(0.1, timer=time)

    def work() -> None:
        time.now += 0.5

    mine, theirs = meter.wrap("attention.mine", "plan", work), meter.wrap("cache.other", "commit", work)
    rounds = Rounds()
    meter.cost("attention.mine", "refresh").join(rounds)
    for _ in range(2):
        mine()
        theirs()
        rounds.count += 1
    meter.forget("attention.mine")
    meter.forget("attention.never-called")
    assert meter.costs() == {"cache.other": {"commit": row(2, 1.0, overruns=2)}}
    mine()
    rounds.count += 1
    assert meter.costs()["attention.mine"] == {"plan": row(1, 0.5, overruns=1), "refresh": row(1, 0.0)}
    meter.cost("attention.mine", "refresh").join(None)
    assert meter.costs()["attention.mine"]["refresh"] == row(1, 0.0)


def test_an_overrun_is_counted_each_time_and_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    meter = Meter(budget=0.010, timer=time)

    def work(seconds: float) -> None:
        time.now += seconds

    order, take = (meter.wrap("schedule_policy.slow", name, work) for name in ("order", "take"))
    with caplog.at_level(logging.WARNING):
        order(0.010)
        for _ in range(5):
            order(0.020)
        take(0.5)
    assert [record.message for record in caplog.records] == [
        "plugin schedule_policy.slow: order took 20.000 ms, the budget is 10 ms (--plugin-time-budget)",
        "plugin schedule_policy.slow: take took 500.000 ms, the budget is 10 ms (--plugin-time-budget)",
    ]
    caplog.clear()
    time.now += 60
    with caplog.at_level(logging.WARNING):
        order(0.020)
    assert caplog.records[0].message.endswith("(--plugin-time-budget); 4 more since the last such line")
    assert {name: costs["overruns"] for name, costs in meter.costs()["schedule_policy.slow"].items()} == {
        "order": 6,
        "take": 1,
    }


def test_without_a_budget_nothing_overruns() -> None:
    time = Time()
    meter = Meter(timer=time)

    def work() -> None:
        time.now += 1e6

    meter.wrap("cache.c", "peek", work)()
    assert meter.costs()["cache.c"]["peek"] == row(1, 1e6)


def test_processes_are_added() -> None:
    one = {"a.a": {"x": row(1, 2.0), "y": row(1, 1.0)}}
    two = {"a.a": {"x": row(3, 4.0, 1, 2)}, "b.b": {"z": row(1, 1.0)}}
    assert merged(one, two) == {
        "a.a": {"x": row(4, 6.0, 1, 2), "y": row(1, 1.0)},
        "b.b": {"z": row(1, 1.0)},
    }
    assert one["a.a"]["x"] == row(1, 2.0)


def test_what_runs_once_a_layer_is_not_metered() -> None:
    assert METHODS["attention"] == ("plan", "refresh")
    assert not {"model", "ops"} & set(METHODS)


@pytest.mark.parametrize("method", ["plan", "attend"])
def test_an_error_that_came_through_a_worker_names_the_plugin_that_raised(method: str) -> None:
    class Backend:
        def plan(self) -> None:
            raise ValueError("no such head")

        attend = plan

    class Worker:
        def launch(self) -> None:
            getattr(backend, method)()

    meter = Meter()
    backend, worker = meter.watch("attention.mine", Backend()), meter.watch("worker.torch", Worker())
    with pytest.raises(ValueError, match="no such head") as raised:
        worker.launch()
    with pytest.raises(
        PluginStop, match=r"plugin attention\.mine, which worker\.torch called, failed .*: no such head"
    ):
        FaultLedger().record("worker.torch", FaultScope.STOP, raised.value)
    assert "attend" not in meter.costs()["worker.torch"]
    assert set(meter.costs().get("attention.mine", {})) <= {"plan"}
