"""Sums of all samples, shown as lines when scraped."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from jackfield.hookspecs import Exposition, Metric, MetricsContext, MetricsSink, Sample, Scrape, hookimpl


class Table(MetricsSink):
    def __init__(self, context: MetricsContext) -> None:
        self._prefix = context.prefix
        self._constant = dict(context.constant_labels)
        self._types: dict[str, str] = {}
        self._sums: dict[str, float] = {}
        self._lock = threading.Lock()

    def declare(self, metrics: Sequence[Metric]) -> None:
        self._types = {metric.name: metric.type for metric in metrics}

    def record(self, samples: Sequence[Sample]) -> None:
        with self._lock:
            for sample in samples:
                kept = self._sums.get(sample.name, 0.0) if self._types[sample.name] != "gauge" else 0.0
                self._sums[sample.name] = kept + sample.value

    def close(self) -> None:
        self._sums.clear()

    def expose(self, scrape: Scrape) -> Exposition | None:
        with self._lock:
            lines = [f"{self._prefix}{name} {value:g}" for name, value in sorted(self._sums.items())]
        return Exposition(content_type=f"text/plain; asked={scrape.accept}", body="\n".join(lines).encode())


@hookimpl
def jackfield_metrics_sink(context: MetricsContext) -> MetricsSink:
    return Table(context)
