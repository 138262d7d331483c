"""The worker's calls, metered: launching, sampling, and waiting for a result."""

from __future__ import annotations

from typing import Any

from jackfield.hookspecs import ModelWorker, PendingResult, WorkerResult
from jackfield.stack.runtime.metering import Meter


def metered_worker(meter: Meter, plugin: str, worker: ModelWorker) -> ModelWorker:
    """The same worker. The results that it hands out count as its method `result`, whose time is spent waiting."""
    meter.watch(plugin, worker)
    sample, result = worker.sample, meter.wrap(plugin, "result", _result, expected=(TimeoutError,))

    def metered_sample(*args: Any, **kwargs: Any) -> PendingResult:
        return _Metered(sample(*args, **kwargs), result)

    object.__setattr__(worker, "sample", metered_sample)
    return worker


def _result(pending: PendingResult, timeout: float | None) -> WorkerResult:
    return pending.result(timeout)


class _Metered:
    """`hookspecs.PendingResult`"""

    __slots__ = ("_pending", "_result", "ready")

    def __init__(self, pending: PendingResult, result: Any) -> None:
        self._pending = pending
        self._result = result
        self.ready = pending.ready

    def result(self, timeout: float | None = None) -> WorkerResult:
        """Raises TimeoutError, or the worker's failure."""
        found: WorkerResult = self._result(self._pending, timeout)
        return found
