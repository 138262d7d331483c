"""A metrics sink over prometheus_client. It knows declarations and samples, not what they measure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from jackfield.hookspecs import Exposition, Metric, MetricsSink, Sample, Scrape

Labels = tuple[tuple[str, str], ...]
Collector = Counter | Gauge | Histogram

# The client takes any UTF-8 name and then escapes it for most scrapers, so that the name in a query is not the declared one.
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


INFO = "_info"
"""How a gauge is named that is 1 while what its labels tell is true, and then 0."""


class PrometheusSink(MetricsSink):
    """`record` is called from one thread and `expose` from any; the client library locks each value."""

    def __init__(self, prefix: str, constant_labels: Labels = ()) -> None:
        self._prefix = prefix
        self._constant = dict(constant_labels)
        if len(self._constant) != len(constant_labels):
            raise ValueError(f"a constant label is given twice: {constant_labels}")
        _check_labels(self._constant)
        self._registry = CollectorRegistry()
        self._declared: dict[str, tuple[Metric, Collector]] = {}
        self._series: dict[tuple[str, Labels], Collector] = {}
        self._was_declared = False
        self._closed = False

    def declare(self, metrics: Sequence[Metric]) -> None:
        if self._was_declared:
            raise RuntimeError("metrics are declared once a run")
        registry = CollectorRegistry()  # of its own, so that a bad declaration leaves nothing half declared
        declared = {}
        for metric in metrics:
            try:
                declared[metric.name] = (metric, self._collector(metric, registry))
            except ValueError as error:
                raise ValueError(f"metric {metric.name!r}: {error}") from error
        self._registry, self._declared, self._was_declared = registry, declared, True
        for metric in metrics:
            if not metric.labels:
                self._find(metric.name, ())  # a series without labels of its own is there from the start, at 0

    def record(self, samples: Sequence[Sample]) -> None:
        """Raises ValueError for samples that do not fit their declaration, after all others were recorded."""
        if self._closed:
            raise RuntimeError("record after close")
        wrong: list[str] = []
        for sample in samples:
            try:
                self._add(sample)
            except ValueError as error:
                wrong.append(f"{sample.name}: {error}")
        if wrong:
            raise ValueError(f"{len(wrong)} of {len(samples)} samples do not fit: {'; '.join(wrong[:5])}")

    def expose(self, scrape: Scrape) -> Exposition | None:
        encode, content_type = choose_encoder(scrape.accept)
        return Exposition(content_type=content_type, body=encode(self._registry))

    def close(self) -> None:
        self._closed = True

    def _collector(self, metric: Metric, registry: CollectorRegistry) -> Collector:
        clash = set(metric.labels) & set(self._constant)
        if clash:
            raise ValueError(f"the label {sorted(clash)[0]!r} is a constant label of the run")
        name, labels = self._prefix + metric.name, (*metric.labels, *self._constant)
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no metric name: letters, digits, underscores and colons, no digit first")
        _check_labels(metric.labels)
        if metric.type == "counter":
            return Counter(name, metric.help, labels, unit=metric.unit, registry=registry)
        if metric.type == "gauge":
            return Gauge(name, metric.help, labels, unit=metric.unit, registry=registry)
        if metric.type != "histogram":
            raise ValueError(f"the type {metric.type!r} is none of counter, gauge, histogram")
        if not metric.buckets:
            raise ValueError("a histogram needs buckets")
        return Histogram(name, metric.help, labels, unit=metric.unit, registry=registry, buckets=metric.buckets)

    def _add(self, sample: Sample) -> None:
        series = self._series.get((sample.name, sample.labels))
        if series is None:
            series = self._find(sample.name, sample.labels)
        if isinstance(series, Counter):
            series.inc(sample.value)
        elif isinstance(series, Gauge):
            series.set(sample.value)
            if sample.value == 0 and sample.name.endswith(INFO):
                self._forget(sample)
        else:
            series.observe(sample.value)

    def _forget(self, sample: Sample) -> None:
        """What it tells is true no longer, and its labels do not come again: kept, they would grow with every change."""
        metric, collector = self._declared[sample.name]
        every = dict(sample.labels) | self._constant
        if every:
            collector.remove(*(every[name] for name in (*metric.labels, *self._constant)))
            del self._series[sample.name, sample.labels]

    def _find(self, name: str, labels: Labels) -> Collector:
        if name not in self._declared:
            raise ValueError("it was not declared")
        metric, collector = self._declared[name]
        given = dict(labels)
        if set(given) != set(metric.labels) or len(given) != len(labels):
            raise ValueError(f"labels {sorted(key for key, _ in labels)}, declared are {sorted(metric.labels)}")
        every = given | self._constant
        series = collector.labels(**every) if every else collector
        self._series[name, labels] = series
        return series


def _check_labels(names: Iterable[str]) -> None:
    for name in names:
        if not _LABEL.fullmatch(name):
            raise ValueError(f"{name!r} is no label name: letters, digits and underscores, no digit and no __ first")
