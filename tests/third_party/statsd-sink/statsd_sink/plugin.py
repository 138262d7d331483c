"""Metrics sink `statsd`."""

from __future__ import annotations

from jackfield.hookspecs import MetricsContext, MetricsSink, hookimpl
from statsd_sink.options import StatsdOptions


@hookimpl
def jackfield_metrics_sink(context: MetricsContext) -> MetricsSink:
    from statsd_sink.sink import StatsdSink

    if not isinstance(context.options, StatsdOptions):
        raise TypeError(f"options of another plugin: {context.options!r}")
    return StatsdSink(context.options, context.prefix, context.constant_labels)
