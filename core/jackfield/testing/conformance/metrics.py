"""The conformance suite of kind `metrics`: declarations, samples, odd ones among them, scrapes from several threads, and the
thread behind which a run keeps a sink. What a sink does with a sample is its own business. Needs no torch.
"""

from __future__ import annotations

import itertools
import re
import sys
import threading
from typing import Any

import pytest

from jackfield.entrypoints.metrics_hub import MetricsHub
from jackfield.hookspecs import Metric, MetricsSink, Sample, Scrape
from jackfield.observability.metrics import METRICS
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.testing.conformance.snapshot import snapshot
from jackfield.testing.conformance.suite import Conformance

ACCEPTS = ("", "*/*", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3")
TEXTS = ("text/plain", "application/openmetrics-text")
MADE = (
    Metric(name="made_total", type="counter", help="A counter.", labels=("what",)),
    Metric(name="made_now", type="gauge", help="A gauge."),
    Metric(name="made_seconds", type="histogram", help="A histogram.", unit="seconds", buckets=(0.1, 1.0)),
)
SAMPLES = (
    Sample(name="made_total", value=2, labels=(("what", "a"),)),
    Sample(name="made_total", value=1, labels=(("what", "a"),)),
    Sample(name="made_now", value=7),
    Sample(name="made_now", value=3),
    Sample(name="made_seconds", value=0.5),
)


class MetricsConformance(Conformance):
    kind = "metrics"

    def sink(self, prefix: str = "jackfield_", labels: tuple[tuple[str, str], ...] = ()) -> MetricsSink:
        made: MetricsSink = self.make(prefix=prefix, constant_labels=labels)
        return made

    def declared(self, **fields: Any) -> MetricsSink:
        sink = self.sink(**fields)
        sink.declare(MADE)
        return sink

    def text(self, sink: MetricsSink) -> str:
        """What a scrape sees, or the end of the check for a sink that is not scraped."""
        answer = sink.expose(Scrape())
        if answer is None:
            sink.close()
            self.not_claimed("expose is not answered: this sink is not scraped")
        return answer.body.decode()

    def test_takes_every_metric_of_a_run(self) -> None:
        """All metrics that a run declares are taken, and one sample of each, with all its labels."""
        sink = self.sink()
        sink.declare(METRICS)
        labels = {metric.name: tuple((name, f"some {name}") for name in metric.labels) for metric in METRICS}
        sink.record([Sample(name=metric.name, value=1.0, labels=labels[metric.name]) for metric in METRICS])
        sink.close()

    def test_takes_batches_of_any_size(self) -> None:
        """No sample, one, and ten thousand in one batch, without changing them."""
        sink = self.declared()
        for batch in ([], list(SAMPLES[:1]), list(SAMPLES) * 2000):
            before = snapshot(batch)
            sink.record(batch)
            assert snapshot(batch) == before, "record changed the batch"
        sink.close()

    def test_takes_labels_in_any_script(self) -> None:
        """Quotes, line ends, separators and other scripts in label values, of samples and of the run."""
        odd = 'a "b"\nc\\d,e=f:g|h#🐦 ñ'
        sink = self.declared(labels=(("model_name", odd), ("stack", "ab12")))
        sink.record([Sample(name="made_total", value=1, labels=(("what", odd),))])
        if (answer := sink.expose(Scrape())) is not None and answer.content_type.startswith(TEXTS):
            wrong = [line for line in answer.body.decode().splitlines() if not line.startswith(("#", "jackfield_"))]
            assert not [line for line in wrong if line], f"a label value broke a line of the text: {wrong}"
        sink.close()

    @pytest.mark.parametrize(
        "bad",
        [
            Sample(name="never_declared", value=1),
            Sample(name="made_now", value=1, labels=(("what", "a"),)),
            Sample(name="made_total", value=1, labels=(("other", "a"),)),
            Sample(name="made_total", value=-1, labels=(("what", "a"),)),
            Sample(name="made_now", value=float("nan")),
            Sample(name="made_seconds", value=float("inf")),
        ],
        ids=["unknown", "a label too many", "another label", "negative count", "nan", "infinity"],
    )
    def test_a_bad_sample_breaks_nothing(self, bad: Sample) -> None:
        """A sample that does not fit may be refused or dropped; what comes after it is taken as ever."""
        sink = self.declared()
        try:
            sink.record([bad, Sample(name="made_now", value=5)])
        except Exception as error:
            self.measured(f"refused with {type(error).__name__}", 1)
        sink.record(SAMPLES)
        for accept in ACCEPTS:
            sink.expose(Scrape(accept=accept))
        if sink.expose(Scrape()) is not None:
            assert value(self.text(sink), "jackfield_made_now") == 3, "the gauge's last value is not what a scrape sees"
        sink.close()

    def test_close_twice(self) -> None:
        """`close` frees what there is; a second one does nothing."""
        sink = self.declared()
        sink.record(SAMPLES)
        sink.close()
        sink.close()

    def test_close_without_a_sample(self) -> None:
        """A run that ends at once closes a sink that never got a sample."""
        self.declared().close()

    def test_a_scrape_sees_what_was_recorded(self) -> None:
        """Counters are added up, a gauge has its last value, and names have the run's prefix and constant labels."""
        sink = self.declared(prefix="acme_", labels=(("model_name", "tiny"),))
        sink.record(SAMPLES)
        text = self.text(sink)
        assert value(text, "acme_made_total") == 3, "a counter is not the sum of its samples"
        assert value(text, "acme_made_now") == 3, "a gauge has not its last value"
        assert "tiny" in text, "the constant label model_name is missing"
        sink.close()

    def test_a_scrape_sees_histograms(self) -> None:
        """Where a text has buckets, each counts all observations up to its bound, and the last one all."""
        sink = self.declared()
        sink.record([Sample(name="made_seconds", value=value) for value in (0.05, 0.5, 0.7, 30.0)])
        text = self.text(sink)
        found = re.findall(r'^jackfield_made_seconds_bucket\{.*?le="([^"]*)".*?\} (\S+)', text, re.MULTILINE)
        if not found:
            self.not_claimed("what a scrape sees has no buckets")
        buckets = {float(bound): float(count) for bound, count in found}
        assert buckets == {0.1: 1.0, 1.0: 3.0, float("inf"): 4.0}, f"buckets of 0.05, 0.5, 0.7 and 30 s: {buckets}"
        assert value(text, "jackfield_made_seconds_count") == 4, "the count is not that of the observations"
        assert abs((value(text, "jackfield_made_seconds_sum") or 0) - 31.25) < 1e-6, "the sum is not theirs"
        sink.close()

    def test_two_sinks_are_apart(self) -> None:
        """The same plugin used twice: a sample of one use is not seen in the other."""
        one, two = self.declared(), self.declared()
        one.record([Sample(name="made_now", value=9)])
        two.record([Sample(name="made_now", value=4)])
        if one.expose(Scrape()) is not None:
            assert value(self.text(one), "jackfield_made_now") == 9, "one sink shows the other's value"
        one.close()
        two.close()

    def test_scrapes_while_it_records(self) -> None:
        """`expose` on several threads at once, while samples come in: no error, and each answer is whole."""
        sink = self.declared()
        self.text(sink)
        errors: list[BaseException] = []
        recorded = threading.Event()

        def scrape() -> None:
            try:
                for accept in itertools.chain(ACCEPTS, itertools.takewhile(lambda _: not recorded.is_set(), every)):
                    answer = sink.expose(Scrape(accept=accept))
                    assert answer is not None, "a sink that is scraped answered None"
                    assert answer.content_type, "an answer without a content type"
                    assert b"made_now" in answer.body, "an answer without a declared metric"
            except BaseException as error:
                errors.append(error)

        every = itertools.cycle(ACCEPTS)
        threads = [threading.Thread(target=scrape) for _ in range(4)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # so that the threads meet inside a call
        try:
            for thread in threads:
                thread.start()
            for i in range(500):
                sink.record([Sample(name="made_total", value=1, labels=(("what", f"{i}"),)), *SAMPLES])
            recorded.set()
            for thread in threads:
                thread.join()
        finally:
            recorded.set()
            sys.setswitchinterval(interval)
        sink.close()
        if errors:
            raise errors[0]

    def test_behind_the_thread_of_a_run(self) -> None:
        """As a run uses it: made on one thread, declared, fed and closed on another, without a fault."""
        ledger = FaultLedger("count")
        hub = MetricsHub([("metrics.mine", self.sink())], ledger)
        hub.start(METRICS)
        for _ in range(20):
            hub.record([Sample(name="num_running_reqs", value=3.0)])
        hub.expose("")
        hub.close()
        assert not hub.sinks[0]._thread.is_alive(), "close does not come back"
        assert ledger.snapshot() == {}, f"faults: {ledger.snapshot()}"


def value(text: str, name: str) -> float | None:
    """The sample of this name with the fewest labels in a text exposition; None if there is none."""
    found = re.findall(rf"^{re.escape(name)}(?:_total)?(\{{.*\}})? (\S+)", text, re.MULTILINE)
    return float(min(found, key=lambda one: len(one[0]))[1]) if found else None
