from __future__ import annotations

import logging

import pytest

from jackfield.hookspecs import FaultScope
from jackfield.stack.errors import PluginStop
from jackfield.stack.runtime.faults import MAX_WORDS, FaultLedger


def test_each_kind_of_error_is_logged_once_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    ledger = FaultLedger(limit=100)
    with caplog.at_level(logging.ERROR):
        for error in (ValueError("a"), ValueError("b"), KeyError("c")):
            ledger.record("observer.x", FaultScope.COUNT, error)
        ledger.record("observer.y", FaultScope.COUNT, ValueError("d"))
    assert len(caplog.records) == 3
    assert all(record.exc_info for record in caplog.records)
    assert ledger.snapshot()["observer.x"] == {
        "count": 3,
        "by_scope": {"count": 3},
        "last": "KeyError: 'c'",
        "quarantined": False,
    }


def test_counted_faults_quarantine_at_the_limit_and_never_stop() -> None:
    ledger = FaultLedger(limit=2)
    ledger.record("metrics.x", FaultScope.COUNT, ValueError())
    assert not ledger.quarantined("metrics.x")
    for _ in range(3):
        ledger.record("metrics.x", FaultScope.COUNT, ValueError())
        assert ledger.quarantined("metrics.x")
    assert not ledger.quarantined("metrics.y")


def test_degraded_steps_stop_at_the_limit() -> None:
    ledger = FaultLedger(limit=2)
    ledger.record("schedule_policy.x", FaultScope.DEGRADE, ValueError("odd"))
    with pytest.raises(PluginStop, match="failed 2 times, the limit is 2: odd") as caught:
        ledger.record("schedule_policy.x", FaultScope.DEGRADE, ValueError("odd"))
    assert isinstance(caught.value.__cause__, ValueError)


def test_faults_of_one_request_do_not_count_towards_degrading() -> None:
    ledger = FaultLedger(limit=2)
    for _ in range(5):
        ledger.record("schedule_policy.x", FaultScope.REQUEST, ValueError())
    ledger.record("schedule_policy.x", FaultScope.DEGRADE, ValueError())
    assert ledger.snapshot()["schedule_policy.x"]["by_scope"] == {"request": 5, "degrade": 1}


def test_a_stop_stops_at_once() -> None:
    with pytest.raises(PluginStop, match="the replica cannot go on: half done"):
        FaultLedger(limit=100).record("cache.x", FaultScope.STOP, RuntimeError("half done"))


@pytest.mark.parametrize("scope", list(FaultScope))
def test_mode_raise_turns_every_scope_into_a_stop(scope: FaultScope) -> None:
    ledger = FaultLedger(mode="raise", limit=100)
    with pytest.raises(PluginStop):
        ledger.record("observer.x", scope, ValueError())
    assert ledger.snapshot()["observer.x"]["count"] == 1


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        FaultLedger(limit=0)


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Speechless(), "Speechless: (its message cannot be read: RuntimeError)"),
        (ValueError("half \ud83d"), "ValueError: half ?"),
        (ValueError("x" * 10**6), "ValueError: " + "x" * MAX_WORDS),
    ],
)
def test_an_error_that_cannot_be_told_as_it_is_harms_nobody(error: Exception, told: str) -> None:
    ledger = FaultLedger(limit=2)
    ledger.record("schedule_policy.x", FaultScope.DEGRADE, error)
    assert ledger.snapshot()["schedule_policy.x"]["last"] == told
    with pytest.raises(PluginStop, match="failed 2 times"):
        ledger.record("schedule_policy.x", FaultScope.DEGRADE, error)
