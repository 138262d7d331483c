"""The Prometheus sink: what a scraper sees of what was recorded."""

from __future__ import annotations

from itertools import pairwise

import pytest
from prometheus_client import REGISTRY
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from jackfield.hookspecs import Metric, MetricsContext, MetricsSink, Sample, Scrape
from jackfield_observability_prometheus.prometheus import jackfield_metrics_sink

OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
REQUESTS = Metric(name="requests", type="counter", help="Requests.", labels=("outcome",))
RUNNING = Metric(name="running", type="gauge", help="Requests that run.")
LATENCY = Metric(name="latency", type="histogram", help="End to end.", unit="seconds", buckets=(0.1, 1.0))


def make(*labels: tuple[str, str], prefix: str = "jackfield_") -> MetricsSink:
    return jackfield_metrics_sink(
        MetricsContext(kind="metrics", name="prometheus", instance="p", prefix=prefix, constant_labels=labels)
    )


def declared(*labels: tuple[str, str]) -> MetricsSink:
    sink = make(*labels)
    sink.declare([REQUESTS, RUNNING, LATENCY])
    return sink


def scrape(sink: MetricsSink, accept: str = "") -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = sink.expose(Scrape(accept=accept))
    assert answer is not None
    parse = parse_openmetrics if "openmetrics" in answer.content_type else parse_plain
    families = parse(answer.body.decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_samples_are_seen_under_full_names(accept: str) -> None:
    sink = declared()
    sink.record(
        [
            Sample(name="requests", value=2, labels=(("outcome", "stop"),)),
            Sample(name="requests", value=1, labels=(("outcome", "stop"),)),
            Sample(name="running", value=7),
            Sample(name="running", value=3),
            Sample(name="latency", value=0.5),
            Sample(name="latency", value=5.0),
        ]
    )
    assert scrape(sink, accept) == {
        ("jackfield_requests_total", (("outcome", "stop"),)): 3,
        ("jackfield_running", ()): 3,
        ("jackfield_latency_seconds_bucket", (("le", "0.1"),)): 0,
        ("jackfield_latency_seconds_bucket", (("le", "1.0"),)): 1,
        ("jackfield_latency_seconds_bucket", (("le", "+Inf"),)): 2,
        ("jackfield_latency_seconds_count", ()): 2,
        ("jackfield_latency_seconds_sum", ()): 5.5,
    }


def test_the_accept_header_chooses_the_format() -> None:
    sink = declared()
    plain, open_metrics = sink.expose(Scrape(accept="text/html, */*")), sink.expose(Scrape(accept=OPENMETRICS))
    assert plain is not None
    assert open_metrics is not None
    assert plain.content_type.startswith("text/plain; version=0.0.4")
    assert open_metrics.content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert open_metrics.body.endswith(b"# EOF\n")
    assert b"# EOF" not in plain.body


def test_constant_labels_stand_on_every_series_from_the_start() -> None:
    sink = declared(("model_name", 'a "quoted"\nname'), ("stack", "ab12"))
    sink.record([Sample(name="requests", value=1, labels=(("outcome", "length"),))])
    seen = scrape(sink, OPENMETRICS)
    constant = (("model_name", 'a "quoted"\nname'), ("stack", "ab12"))
    assert seen["jackfield_running", constant] == 0
    assert seen["jackfield_requests_total", tuple(sorted((*constant, ("outcome", "length"))))] == 1
    assert all(set(constant) <= set(labels) for _, labels in seen)


def test_sinks_are_independent_of_each_other_and_of_the_global_registry() -> None:
    before = {family.name for family in REGISTRY.collect()}
    first, second = declared(), declared()
    first.record([Sample(name="running", value=9)])
    assert scrape(second)["jackfield_running", ()] == 0
    assert {family.name for family in REGISTRY.collect()} == before


@pytest.mark.parametrize("run", [(), (("model_name", "m"),)])
def test_information_that_is_true_no_longer_is_gone(run: tuple[tuple[str, str], ...]) -> None:
    sink = make(*run)
    sink.declare([Metric(name="stack_info", type="gauge", help="The stack.", labels=("hash", "epoch")), RUNNING])
    told = [tuple(zip(("epoch", "hash"), (str(epoch), f"{epoch:x}"), strict=True)) for epoch in range(300)]
    for before, now in pairwise(told):
        sink.record([Sample(name="stack_info", value=0, labels=before), Sample(name="stack_info", value=1, labels=now)])
    sink.record([Sample(name="running", value=0)])
    assert scrape(sink) == {
        ("jackfield_stack_info", tuple(sorted((*told[-1], *run)))): 1,
        ("jackfield_running", run): 0,
    }


def test_a_bad_sample_is_named_and_the_others_are_kept() -> None:
    sink = declared()
    with pytest.raises(ValueError, match=r"4 of 5 samples.*runing: it was not declared.*non-negative") as caught:
        sink.record(
            [
                Sample(name="runing", value=1),
                Sample(name="requests", value=-1, labels=(("outcome", "stop"),)),
                Sample(name="requests", value=1),
                Sample(name="running", value=1, labels=(("outcome", "stop"),)),
                Sample(name="running", value=4),
            ]
        )
    assert "labels [], declared are ['outcome']" in str(caught.value)
    assert scrape(sink)["jackfield_running", ()] == 4


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (Metric(name="a", type="summary", help=""), "metric 'a': the type 'summary'"),
        (Metric(name="a", type="histogram", help=""), "needs buckets"),
        (Metric(name="a", type="histogram", help="", buckets=(2.0, 1.0)), "metric 'a'"),
        (Metric(name="a", type="gauge", help="", labels=("stack",)), "constant label"),
        (Metric(name="a-b", type="gauge", help=""), "'jackfield_a-b' is no metric name"),
        (Metric(name="a", type="gauge", help="", labels=("le gal",)), "'le gal' is no label name"),
        (RUNNING, "metric 'running': Duplicated"),
    ],
)
def test_a_bad_declaration_is_refused_whole(metric: Metric, message: str) -> None:
    sink = make(("stack", "ab12"))
    with pytest.raises(ValueError, match=message):
        sink.declare([RUNNING, metric])
    assert scrape(sink) == {}
    sink.declare([RUNNING])
    with pytest.raises(RuntimeError, match="once"):
        sink.declare([LATENCY])


def test_after_close_nothing_is_recorded_and_the_last_values_can_be_read() -> None:
    sink = declared()
    sink.close()
    sink.close()
    with pytest.raises(RuntimeError, match="after close"):
        sink.record([])
    assert scrape(sink)["jackfield_running", ()] == 0


def test_a_bad_constant_label_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        make(("a", "1"), ("a", "2"))
    with pytest.raises(ValueError, match="no label name"):
        make(("1a", "1"))
