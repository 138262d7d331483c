"""Sinks that are slow, stuck, broken or fine; whatever they do, `record` returns and nobody else suffers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from jackfield.entrypoints import metrics_hub
from jackfield.entrypoints.metrics_hub import MetricsHub
from jackfield.hookspecs import Exposition, Metric, MetricsSink, Sample, Scrape
from jackfield.stack.errors import PluginLoadError, PluginStop
from jackfield.stack.runtime.faults import FaultLedger

DECLARED = (Metric(name="steps_total", type="counter", help="Steps."),)
DEADLINE = 30.0


class ListSink(MetricsSink):
    """Keeps what it gets. gate: recording waits for it; error: raised by each record."""

    def __init__(self, error: Exception | None = None, answer: bytes | None = None) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.samples: list[Sample] = []
        self.threads: set[int] = set()
        self.declared: Sequence[Metric] = ()
        self.closed = 0
        self._error = error
        self._answer = answer

    def declare(self, metrics: Sequence[Metric]) -> None:
        self.threads.add(threading.get_ident())
        self.declared = metrics

    def record(self, samples: Sequence[Sample]) -> None:
        self.threads.add(threading.get_ident())
        self.entered.set()
        assert self.gate.wait(DEADLINE)
        if self._error is not None:
            raise self._error
        self.samples.extend(samples)

    def expose(self, scrape: Scrape) -> Exposition | None:
        return None if self._answer is None else Exposition(content_type=scrape.accept, body=self._answer)

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.closed += 1


def sample(value: float = 1.0) -> Sample:
    return Sample(name="steps_total", value=value)


@contextmanager
def running(*sinks: MetricsSink, ledger: FaultLedger | None = None, capacity: int = 100) -> Iterator[MetricsHub]:
    named = [(f"metrics.s{number}", sink) for number, sink in enumerate(sinks)]
    hub = MetricsHub(named, ledger or FaultLedger(), capacity=capacity)
    hub.start(DECLARED)
    try:
        yield hub
    finally:
        for sink in sinks:
            if isinstance(sink, ListSink):
                sink.gate.set()
        hub.close()


def flush(hub: MetricsHub) -> None:
    assert all(sink.flush(DEADLINE) for sink in hub.sinks)


def test_everything_arrives_in_order_on_one_thread_and_close_waits_for_it() -> None:
    sink = ListSink()
    with running(sink, capacity=10_000) as hub:
        for value in range(1000):
            hub.record([sample(value)])
    assert [one.value for one in sink.samples] == list(range(1000))
    assert sink.declared == DECLARED
    assert len(sink.threads) == 1
    assert threading.get_ident() not in sink.threads
    assert sink.closed == 1


def test_a_stuck_sink_drops_and_counts_while_others_go_on() -> None:
    stuck, fine = ListSink(), ListSink()
    stuck.gate.clear()
    with running(stuck, fine, capacity=10) as hub:
        hub.record([sample()])
        assert stuck.entered.wait(DEADLINE)  # it holds the first batch now
        for _ in range(25):
            hub.record([sample()])
            assert hub.sinks[1].flush(DEADLINE)
        assert hub.sinks[0].dropped == 15
        assert hub.sinks[1].dropped == 0
        assert len(fine.samples) == 26
        stuck.gate.set()
        flush(hub)
        assert len(stuck.samples) == 11


def test_a_sink_that_never_comes_back_does_not_stop_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_hub, "CLOSE_SECONDS", 0.01)
    stuck = ListSink()
    stuck.gate.clear()
    with running(stuck) as hub:
        hub.record([sample()])
        assert stuck.entered.wait(DEADLINE)
        hub.close()
        assert not stuck.closed


def test_a_sink_that_raises_is_counted_and_switched_off_at_the_limit() -> None:
    ledger = FaultLedger(limit=3)
    bad, fine = ListSink(error=OSError("disk full")), ListSink()
    with running(bad, fine, ledger=ledger) as hub:
        for _ in range(5):
            hub.record([sample()])
            flush(hub)
        account = ledger.snapshot()["metrics.s0"]
        assert (account["count"], account["quarantined"]) == (3, True)
        assert len(fine.samples) == 5
        hub.check()


def test_with_faults_raise_the_failure_waits_for_whoever_moves_the_replica() -> None:
    with running(ListSink(error=OSError("disk full")), ledger=FaultLedger(mode="raise")) as hub:
        hub.check()
        hub.record([sample()])
        flush(hub)
        with pytest.raises(PluginStop, match="disk full"):
            hub.check()


def test_a_sink_that_refuses_the_declarations_refuses_the_start() -> None:
    class Refusing(ListSink):
        def declare(self, metrics: Sequence[Metric]) -> None:
            raise ValueError("no such unit")

    fine = ListSink()
    hub = MetricsHub([("metrics.fine", fine), ("metrics.odd", Refusing())], FaultLedger())
    with pytest.raises(PluginLoadError, match=r"metrics\.odd did not take the metrics: no such unit"):
        hub.start(DECLARED)
    assert fine.closed == 1


def test_the_first_sink_that_answers_is_scraped_with_all_that_was_recorded() -> None:
    class Counting(ListSink):
        def expose(self, scrape: Scrape) -> Exposition | None:
            return Exposition(content_type=scrape.accept, body=str(len(self.samples)).encode())

    with running(ListSink(), Counting(), ListSink(answer=b"last")) as hub:
        hub.record([sample(), sample()])
        answer = hub.expose("text/x")
        assert answer == Exposition(content_type="text/x", body=b"2")
    with running(ListSink()) as hub:
        assert hub.expose("text/x") is None


def test_a_scrape_that_fails_is_a_fault_and_the_next_sink_answers() -> None:
    class Broken(ListSink):
        def expose(self, scrape: Scrape) -> Exposition | None:
            raise RuntimeError("no registry")

    ledger = FaultLedger(limit=2)
    with running(Broken(), ListSink(answer=b"mine"), ledger=ledger) as hub:
        for _ in range(3):
            answer = hub.expose("")
            assert answer is not None
            assert answer.body == b"mine"
        assert ledger.snapshot()["metrics.s0"]["count"] == 2  # quarantined: not asked a third time


def test_what_is_recorded_after_the_end_goes_nowhere() -> None:
    sink = ListSink()
    with running(sink) as hub:
        pass
    hub.record([sample()])
    hub.close()
    assert (sink.samples, sink.closed) == ([], 1)


def test_times_are_told_by_sink() -> None:
    with running(ListSink(), ListSink()) as hub:
        hub.sinks[1].put([sample()])
        flush(hub)
        costs = hub.meter.costs()
        assert list(costs) == ["metrics.s1"]
        assert costs["metrics.s1"]["record"]["calls"] == 1
