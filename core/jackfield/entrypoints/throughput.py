"""The throughput line in the log: what the scheduler did since the last line, at an interval of busy time."""

from __future__ import annotations

import logging

from jackfield.ipc.messages import SchedulerReport

log = logging.getLogger("jackfield.throughput")


class ThroughputLog:
    """interval: seconds of work between two lines, time in which nothing was open left out; 0: no lines."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._clear()

    def on_report(self, report: SchedulerReport) -> None:
        if not self._interval:
            return
        self._seconds += report.seconds
        self._prefill += report.prefill_tokens
        self._cached += report.cached_tokens
        self._decode += report.decode_tokens
        if self._seconds < self._interval:
            return
        used = report.kv_total - report.kv_free - report.kv_evictable
        prompt = self._prefill + self._cached
        log.info(
            "running %d, waiting %d, token usage %.2f, cache hit rate %.2f, prefill %.1f tokens/s, decode %.1f tokens/s",
            report.running,
            report.waiting,
            used / report.kv_total if report.kv_total else 0.0,
            self._cached / prompt if prompt else 0.0,
            self._prefill / self._seconds,
            self._decode / self._seconds,
        )
        self._clear()

    def _clear(self) -> None:
        self._seconds = 0.0
        self._prefill = self._cached = self._decode = 0
