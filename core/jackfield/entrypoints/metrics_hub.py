"""The metrics sinks of a run: each on a thread of its own behind a bounded queue. Knows no metric by name.

`record` is called on the path of requests, so it neither blocks nor raises: what a slow sink cannot take is dropped and
counted.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence

from jackfield.hookspecs import Exposition, FaultScope, Metric, MetricsSink, Sample, Scrape
from jackfield.stack.errors import PLUGIN_ERRORS, PluginLoadError, PluginStop
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter

log = logging.getLogger(__name__)

QUEUE_SAMPLES = 100_000
"""Samples that may wait for one sink: some seconds of a busy server."""
CLOSE_SECONDS = 5.0
"""How long an orderly end waits for a sink that does not come back."""
FLUSH_SECONDS = 1.0
"""How long a scrape waits for what was recorded before it."""


class SinkThread:
    """One sink. Its `declare`, `record` and `close` run on one thread; `expose` on the caller's.

    name      "metrics.instance", its key in the ledger
    dropped   samples that found the queue full, so far
    """

    def __init__(self, name: str, sink: MetricsSink, ledger: FaultLedger, meter: Meter, capacity: int) -> None:
        self.name = name
        self.dropped = 0
        self.stop: PluginStop | None = None
        self._sink = meter.watch(name, sink)
        self._ledger = ledger
        self._capacity = capacity
        self._batches: deque[Sequence[Sample]] = deque()
        self._waiting = 0
        self._recorded = 0
        self._accepted = 0
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"jackfield-{name}", daemon=True)
        self._declared = threading.Event()
        self._refused: BaseException | None = None
        self._metrics: Sequence[Metric] = ()

    def start(self, metrics: Sequence[Metric]) -> None:
        """Declare. Raises PluginLoadError: a sink that cannot take the declarations must not serve."""
        self._metrics = metrics
        self._thread.start()
        self._declared.wait()
        if self._refused is not None:
            raise PluginLoadError(f"{self.name} did not take the metrics: {self._refused}") from self._refused

    def put(self, samples: Sequence[Sample]) -> None:
        with self._changed:
            if self._closing or self._ledger.quarantined(self.name):
                return
            if self._waiting + len(samples) > self._capacity:
                self.dropped += len(samples)
                return
            self._batches.append(samples)
            self._waiting += len(samples)
            self._accepted += 1
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until the sink has what was put so far. False: it was too slow."""
        with self._changed:
            wanted = self._accepted
            return self._changed.wait_for(lambda: self._recorded >= wanted or not self._thread.is_alive(), seconds)

    def expose(self, accept: str) -> Exposition | None:
        if self._ledger.quarantined(self.name):
            return None
        try:
            return self._sink.expose(Scrape(accept=accept))
        except PLUGIN_ERRORS as error:
            self._fault(error)
            return None

    def close(self, seconds: float) -> None:
        """Record what waits, then close the sink. Gives up on one that does not come back; its thread is a daemon."""
        if self._thread.ident is None:  # never started
            return
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(seconds)
        if self._thread.is_alive():
            log.warning("%s did not end within %g s; %d samples are lost", self.name, seconds, self._waiting)

    def _run(self) -> None:
        try:
            self._sink.declare(self._metrics)
        except PLUGIN_ERRORS as error:
            self._refused = error
            return
        finally:
            self._declared.set()
        while (batches := self._take()) is not None:
            if not self._ledger.quarantined(self.name):
                self._record([sample for batch in batches for sample in batch])
            with self._changed:
                self._recorded += len(batches)
                self._changed.notify_all()
        try:
            self._sink.close()
        except PLUGIN_ERRORS as error:
            self._fault(error)

    def _take(self) -> list[Sequence[Sample]] | None:
        """All that waits; None when there is nothing more to come."""
        with self._changed:
            self._changed.wait_for(lambda: self._batches or self._closing)
            if not self._batches:
                return None
            batches = list(self._batches)
            self._batches.clear()
            self._waiting = 0
            return batches

    def _record(self, samples: Sequence[Sample]) -> None:
        try:
            self._sink.record(samples)
        except PLUGIN_ERRORS as error:
            self._fault(error)

    def _fault(self, error: BaseException) -> None:
        try:
            self._ledger.record(self.name, FaultScope.COUNT, error)
        except PluginStop as stop:  # --plugin-faults raise: whoever moves the replica is told
            self.stop = stop


class MetricsHub:
    """All sinks. Used by any thread."""

    def __init__(
        self,
        sinks: Sequence[tuple[str, MetricsSink]],
        ledger: FaultLedger,
        meter: Meter | None = None,
        *,
        capacity: int = QUEUE_SAMPLES,
    ) -> None:
        """sinks: ("metrics.instance", sink) in stack order; the first that answers a scrape is asked for it."""
        self.meter = meter if meter is not None else Meter()
        self.sinks = [SinkThread(name, sink, ledger, self.meter, capacity) for name, sink in sinks]

    def start(self, metrics: Sequence[Metric]) -> None:
        """Raises PluginLoadError; what was started then is closed again."""
        try:
            for sink in self.sinks:
                sink.start(metrics)
        except BaseException:
            self.close()
            raise

    def record(self, samples: Sequence[Sample]) -> None:
        for sink in self.sinks:
            sink.put(samples)

    def expose(self, accept: str) -> Exposition | None:
        """Answer a scrape with all that was recorded before it, unless the sink is slow. May block: not for an event loop."""
        for sink in self.sinks:
            sink.flush(FLUSH_SECONDS)
            if (answer := sink.expose(accept)) is not None:
                return answer
        return None

    def check(self) -> None:
        """Raises PluginStop if a sink failed and `--plugin-faults` is "raise"."""
        for sink in self.sinks:
            if sink.stop is not None:
                raise sink.stop

    def close(self) -> None:
        for sink in self.sinks:
            sink.close(CLOSE_SECONDS)
