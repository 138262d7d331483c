"""Calls of the worker: timed, and an error in one stops the replica, because a batch that was done by half cannot be taken
back."""

from __future__ import annotations

from types import TracebackType

from jackfield.hookspecs import FaultScope, Launched, ModelWorker, ModelWorkerBatch, TokenMasks, WorkerResult
from jackfield.managers.scheduler.batch import StepInFlight
from jackfield.managers.scheduler.watchers import Ledger
from jackfield.observability.clock import Clock
from jackfield.stack.errors import PLUGIN_ERRORS


class WorkerCalls:
    """plugin   whose fault an error is
    seconds  spent in calls that succeeded

    `with` itself a call is timed and its error booked: a class, because a generator costs three times as much, thrice a step.
    """

    def __init__(self, worker: ModelWorker, clock: Clock, ledger: Ledger, plugin: str) -> None:
        self.worker = worker
        self.seconds = 0.0
        self._clock = clock
        self._ledger = ledger
        self._plugin = plugin
        self._began = 0.0

    def launch(self, batch: ModelWorkerBatch) -> Launched:
        with self:
            return self.worker.launch(batch)

    def sample(self, step: StepInFlight, masks: TokenMasks | None) -> None:
        """Nothing for a step that was empty when it was launched. Raises RuntimeError the second time."""
        if step.launched is None:
            return
        if step.pending is not None:
            raise RuntimeError(f"step {step.batch.step} is sampled twice")
        with self:
            step.pending = self.worker.sample(step.launched, masks)

    def fetch(self, step: StepInFlight) -> WorkerResult:
        """Blocks until it is there. Raises RuntimeError for a step that was not sampled."""
        if step.pending is None:
            raise RuntimeError(f"step {step.batch.step} is committed before it was sampled")
        with self:
            return step.fetch(None)

    def wait(self, step: StepInFlight, timeout: float | None) -> bool:
        """Whether the result is there, now or within so many seconds (None: for ever). True for a step that was not sampled."""
        with self:
            if step.pending is not None and not step.ready():
                try:
                    step.fetch(timeout)
                except TimeoutError:
                    return False
        return True

    def __enter__(self) -> None:
        self._began = self._clock.now()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.seconds += self._clock.now() - self._began
        elif isinstance(error, PLUGIN_ERRORS):
            self._ledger.record(self._plugin, FaultScope.STOP, error)
