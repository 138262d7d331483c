"""Entry point of the metrics plugin `prometheus`."""

from __future__ import annotations

from jackfield.hookspecs import MetricsContext, MetricsSink, hookimpl


@hookimpl
def jackfield_metrics_sink(context: MetricsContext) -> MetricsSink:
    from jackfield_observability_prometheus.sink import PrometheusSink

    return PrometheusSink(context.prefix, context.constant_labels)
