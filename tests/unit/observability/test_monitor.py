"""What the monitor makes of reports and of the ledgers of several processes, over a sink that keeps all samples."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.metrics_hub import MetricsHub
from jackfield.entrypoints.monitor import Monitor
from jackfield.entrypoints.process_times import cpu_seconds
from jackfield.hookspecs import FaultScope, Metric, MetricsSink, Sample
from jackfield.ipc.messages import HookCost, PluginFaults, SchedulerReport
from jackfield.observability.clock import ManualClock
from jackfield.observability.metrics import BY_NAME, METRICS
from jackfield.stack.epochs import StackEpochs
from jackfield.stack.errors import PluginStop
from jackfield.stack.resolved import ResolvedStack
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter
from jackfield.stack.runtime.observers import ObserverHub


class Keeping(MetricsSink):
    """Keeps all samples, and holds each against its declaration."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def declare(self, metrics: Sequence[Metric]) -> None:
        assert tuple(metrics) == METRICS

    def record(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            assert tuple(name for name, _ in sample.labels) == BY_NAME[sample.name].labels
            assert sample.value >= 0
        self.samples.extend(samples)

    def close(self) -> None:
        return None


class Setting:
    def __init__(self, **ledger: Any) -> None:
        self.sink = Keeping()
        self.ledger = FaultLedger(**ledger)
        self.meter = Meter(timer=lambda: next(self.ticks) / 4)
        self.ticks = itertools.count()
        self.hub = MetricsHub([("metrics.keeping", self.sink)], self.ledger)
        self.hub.start(METRICS)
        self.monitor = Monitor(
            ServerArgs(),
            self.hub,
            model_name="mine",
            stacks=StackEpochs(ResolvedStack(plugins=()), "f" * 64),
            page_size=1,
            ledger=self.ledger,
            meter=self.meter,
            observers=cast(ObserverHub, None),  # whom a swap is told; the tests of swaps have real ones
            role="main",
            clock=ManualClock(),
            began=0.0,
        )

    def report(self, **given: Any) -> None:
        numbers: dict[str, Any] = dict.fromkeys(
            (
                "steps",
                "running",
                "waiting",
                "kv_total",
                "kv_free",
                "kv_evictable",
                "kv_protected",
                "kv_pending",
                "kv_held",
            ),
            0,
        )
        self.monitor.on_report(SchedulerReport(**(numbers | given)))

    def total(self, name: str, **labels: str) -> float:
        assert self.hub.sinks[0].flush(30.0)
        return sum(one.value for one in self.sink.samples if one.name == name and dict(one.labels) == labels)

    def last(self, name: str) -> float:
        assert self.hub.sinks[0].flush(30.0)
        return [one.value for one in self.sink.samples if one.name == name][-1]


@pytest.fixture
def setting() -> Iterator[Setting]:
    made = Setting()
    yield made
    made.monitor.close()
    assert not made.ledger.snapshot().get("metrics.keeping")


def test_gauges_of_a_report(setting: Setting) -> None:
    setting.report(running=3, waiting=2, kv_total=100, kv_free=50, kv_evictable=30, seconds=2.0, decode_tokens=60)
    assert setting.last("num_running_reqs") == 3
    assert setting.last("num_queue_reqs") == 2
    assert setting.last("num_used_tokens") == 20
    assert setting.last("token_usage") == 0.2
    assert setting.last("gen_throughput") == 30.0
    setting.report(kv_total=100, kv_free=70, kv_evictable=30, seconds=1.0, decode_tokens=5)
    assert setting.last("token_usage") == setting.last("gen_throughput") == setting.last("num_used_tokens") == 0


def test_counters_travel_as_increases(setting: Setting) -> None:
    for _ in range(3):
        setting.report(
            prefill_tokens=10, cached_tokens=30, decode_tokens=4, evicted_tokens=7, new_steps=2, retracted_requests=5
        )
    assert setting.total("realtime_tokens_total", mode="prefill_compute") == 30
    assert setting.total("realtime_tokens_total", mode="prefill_cache") == 90
    assert setting.total("realtime_tokens_total", mode="decode") == 12
    assert setting.total("evicted_tokens_total") == 21
    assert setting.total("num_retracted_requests_total") == 15
    assert setting.total("scheduler_steps_total") == 6
    assert setting.last("cache_hit_rate") == 0.75


def test_faults_and_times_of_both_processes_are_added(setting: Setting) -> None:
    setting.ledger.record("observer.audit", FaultScope.COUNT, OSError("here"))
    for _ in range(2):
        setting.meter.wrap("observer.audit", "hook_a", lambda: None)()
    theirs = PluginFaults(count=2, by_scope={"count": 1, "degrade": 1}, last="there", quarantined=True)
    hooks = {
        "observer.audit": {
            "hook_a": HookCost(calls=3, seconds=0.25, overruns=2),
            "hook_b": HookCost(calls=1, seconds=1, exceptions=1),
        }
    }
    setting.report(faults={"observer.audit": theirs, "cache.odd": PluginFaults(count=1)}, hooks=hooks)
    faults = setting.monitor.faults()
    assert faults["observer.audit"] == {
        "count": 3,
        "by_scope": {"count": 2, "degrade": 1},
        "last": "there",
        "quarantined": True,
    }
    assert faults["cache.odd"]["count"] == 1
    times = setting.monitor.timings()["observer.audit"]
    assert times == {
        "hook_a": {"calls": 5.0, "seconds": 0.75, "exceptions": 0.0, "overruns": 2.0},
        "hook_b": {"calls": 1.0, "seconds": 1.0, "exceptions": 1.0, "overruns": 0.0},
    }
    setting.report(faults={"observer.audit": theirs}, hooks=hooks)
    assert setting.total("plugin_faults_total", plugin="observer.audit", scope="count") == 2
    assert setting.total("plugin_faults_total", plugin="observer.audit", scope="degrade") == 1
    assert setting.last("plugin_quarantined") == 1
    assert setting.total("plugin_overruns_total", plugin="observer.audit", hook="hook_a") == 2
    assert setting.monitor.health.status()[1]["overruns"] == {"observer.audit": {"hook_a": 2}}
    assert setting.total("plugin_calls_total", plugin="observer.audit", hook="hook_a") == 5
    assert setting.total("plugin_seconds_total", plugin="observer.audit", hook="hook_a") == 0.75


def test_a_sink_that_failed_stops_the_run_only_where_that_was_asked() -> None:
    for mode in ("count", "raise"):
        made = Setting(mode=mode)
        try:
            made.hub.record([Sample(name="no_such_metric", value=1)])
            assert made.hub.sinks[0].flush(30.0)
            if mode == "count":
                made.report()
            else:
                with pytest.raises(PluginStop, match=r"metrics\.keeping"):
                    made.report()
        finally:
            made.monitor.close()


@pytest.mark.parametrize(
    ("endpoint", "method", "model", "labels"),
    [
        ("/generate", "POST", None, {"endpoint": "/generate", "method": "POST", "model": ""}),
        ("/generate", "POST", "mine", {"endpoint": "/generate", "method": "POST", "model": "mine"}),
        ("/generate", "POST", "yours", {"endpoint": "/generate", "method": "POST", "model": "other"}),
        (None, "BREW", None, {"endpoint": "other", "method": "other", "model": ""}),
    ],
)
def test_labels_of_http(
    setting: Setting, endpoint: str | None, method: str, model: str | None, labels: dict[str, str]
) -> None:
    setting.monitor.http_request(endpoint, method, 200, model)
    assert setting.total("http_requests_total", status="200", **labels) == 1


def test_cpu_time_of_a_process_grows_and_of_none_is_unknown() -> None:
    before = cpu_seconds(os.getpid())
    assert before is not None
    while (now := cpu_seconds(os.getpid())) is not None and now <= before:
        sum(range(10_000))
    assert now is not None
    assert cpu_seconds(2**22 + 1) is None  # above any process id
