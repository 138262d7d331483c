"""The throughput line: its numbers, and when it comes."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from jackfield.entrypoints.throughput import ThroughputLog
from jackfield.ipc.messages import SchedulerReport


def report(seconds: float, **numbers: Any) -> SchedulerReport:
    given: dict[str, Any] = dict.fromkeys(("kv_protected", "kv_pending", "kv_held"), 0)
    given |= {"steps": 1, "running": 2, "waiting": 3, "kv_total": 100, "kv_free": 60, "kv_evictable": 15}
    return SchedulerReport(seconds=seconds, **(given | numbers))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "jackfield.throughput"]


@pytest.fixture(autouse=True)
def _told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="jackfield.throughput")


def test_a_line_after_each_interval_of_work(caplog: pytest.LogCaptureFixture) -> None:
    log = ThroughputLog(10)
    log.on_report(report(6.0, prefill_tokens=100, cached_tokens=50, decode_tokens=30))
    assert lines(caplog) == []
    log.on_report(report(4.0, prefill_tokens=50, decode_tokens=20))
    assert lines(caplog) == [
        "running 2, waiting 3, token usage 0.25, cache hit rate 0.25, prefill 15.0 tokens/s, decode 5.0 tokens/s"
    ]
    log.on_report(report(10.0, decode_tokens=40))
    assert lines(caplog)[1].endswith("cache hit rate 0.00, prefill 0.0 tokens/s, decode 4.0 tokens/s")


def test_zero_is_off(caplog: pytest.LogCaptureFixture) -> None:
    log = ThroughputLog(0)
    for _ in range(5):
        log.on_report(report(100.0, decode_tokens=1))
    assert lines(caplog) == []
