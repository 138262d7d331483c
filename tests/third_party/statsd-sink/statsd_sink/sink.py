"""Samples as StatsD lines in UDP datagrams. UDP loses what it loses; nothing here waits or repeats."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence

from jackfield.hookspecs import Metric, MetricsSink, Sample
from statsd_sink.options import StatsdOptions

Labels = tuple[tuple[str, str], ...]

_RESERVED = re.compile(r"[:|@#,\s]")  # what the line format means something by


class StatsdSink(MetricsSink):
    def __init__(self, options: StatsdOptions, prefix: str, constant_labels: Labels) -> None:
        self._options = options
        self._prefix = prefix
        self._constant = constant_labels
        self._metrics: dict[str, Metric] = {}
        family, _, _, _, address = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_DGRAM)[0]
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._address = address

    def declare(self, metrics: Sequence[Metric]) -> None:
        self._metrics = {metric.name: metric for metric in metrics}

    def record(self, samples: Sequence[Sample]) -> None:
        pending: list[bytes] = []
        size = 0
        for sample in samples:
            for line in self._lines(sample):
                if pending and size + len(line) + 1 > self._options.datagram_bytes:
                    self._send(pending)
                    pending, size = [], 0
                pending.append(line)
                size += len(line) + 1
        if pending:
            self._send(pending)

    def close(self) -> None:
        self._socket.close()

    def _send(self, lines: list[bytes]) -> None:
        self._socket.sendto(b"\n".join(lines), self._address)

    def _lines(self, sample: Sample) -> Iterator[bytes]:
        metric = self._metrics[sample.name]
        value, code = sample.value, {"counter": "c", "gauge": "g", "histogram": "h"}[metric.type]
        if metric.type == "histogram" and metric.unit == "seconds":
            value, code = value * 1000, "ms"
        name = _RESERVED.sub("_", self._prefix + metric.name)
        tags = self._tags(sample.labels)
        if metric.type == "gauge" and value < 0:
            yield f"{name}:0|g{tags}".encode()  # a signed value changes a gauge instead of setting it
        yield f"{name}:{value:.12g}|{code}{tags}".encode()

    def _tags(self, labels: Labels) -> str:
        every = (*self._constant, *labels)
        if self._options.tags == "none" or not every:
            return ""
        return "|#" + ",".join(f"{_RESERVED.sub('_', key)}:{_RESERVED.sub('_', value)}" for key, value in every)
