"""Runs any worker on a thread of its own, so that the scheduler works while the worker computes.

For workers whose `launch` returns only when the forward has ended (torch on a CPU). It knows no tensor and no request: calls
go to the thread in the order in which they were made, and what they return or raise comes out of the result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

from jackfield.hookspecs import (
    KVMover,
    Launched,
    ModelWorker,
    ModelWorkerBatch,
    PendingResult,
    TokenMasks,
    WorkerOp,
    WorkerReply,
    WorkerResult,
)
from jackfield.managers.scheduler.threaded_mover import ThreadedMover


class _Call:
    """One call for the thread. Its outcome is set once, then `done`.

    always   to be made even after another call has failed
    """

    __slots__ = ("_done", "_error", "_value", "always", "function")

    def __init__(self, function: Callable[[], Any], *, always: bool = False) -> None:
        self.function = function
        self.always = always
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def make(self) -> BaseException | None:
        """On the thread. Returns what it raised."""
        try:
            self._value = self.function()
        except BaseException as error:  # whatever it is, it is raised where the result is asked for
            self._error = error
        self._done.set()
        return self._error

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._done.set()

    def done(self) -> bool:
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._done.wait(timeout)

    def outcome(self) -> Any:
        """What the call returned, once it is done; raises what it raised."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value


class ThreadedLaunch(Launched):
    __slots__ = ("call",)

    def __init__(self, call: _Call) -> None:
        self.call = call


class ThreadedResult:
    """`hookspecs.PendingResult`: first the thread has to come to it, then the worker's own result is waited for."""

    def __init__(self, call: _Call) -> None:
        self._call = call

    def ready(self) -> bool:
        """True as well when the step has failed: `result` raises at once then."""
        if not self._call.done():
            return False
        try:
            inner: PendingResult = self._call.outcome()
        except BaseException:
            return True
        return inner.ready()

    def result(self, timeout: float | None = None) -> WorkerResult:
        """Raises TimeoutError, or what `launch`, `sample` or the result of the worker itself raised."""
        end = None if timeout is None else time.monotonic() + timeout
        if not self._call.wait(timeout):
            raise TimeoutError(f"the step did not end within {timeout} s")
        inner: PendingResult = self._call.outcome()
        return inner.result(None if end is None else max(0.0, end - time.monotonic()))


class ThreadedWorker(ModelWorker):
    """`launch` and `sample` return at once. The first call that raises is the last that reaches the worker, `close` apart:
    every later one fails with the same error.

    The worker must bear that it is made in one thread and called from another, and its results are read here, in the
    caller's thread, so that the next launch need not wait for them.
    """

    def __init__(self, worker: ModelWorker) -> None:
        self.limits = worker.limits
        self._worker = worker
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._closing: _Call | None = None
        # A daemon, so that a process whose owner forgot `close` can still end.
        self._thread = threading.Thread(target=_serve, args=(self._calls,), name="jackfield-worker", daemon=True)
        self._thread.start()

    def launch(self, batch: ModelWorkerBatch) -> ThreadedLaunch:
        return ThreadedLaunch(self._call(lambda: self._worker.launch(batch)))

    def sample(self, launched: Launched, masks: TokenMasks | None = None) -> ThreadedResult:
        if not isinstance(launched, ThreadedLaunch):
            raise TypeError(f"{type(launched).__name__} was not launched here")
        return ThreadedResult(self._call(lambda: self._worker.sample(launched.call.outcome(), masks)))

    def control(self, op: WorkerOp) -> WorkerReply:
        reply: WorkerReply = self._call(lambda: self._worker.control(op)).outcome()
        return reply

    def report(self) -> Mapping[str, float | int | str | None]:
        return self._worker.report()

    def mover(self) -> KVMover | None:
        mover = self._call(self._worker.mover).outcome()
        return None if mover is None else ThreadedMover(mover, self._call)

    def close(self) -> None:
        """Ends the steps that were launched, closes the worker, ends the thread."""
        if self._closing is None:
            self._closing = self._call(self._worker.close, always=True)
            self._calls.put(None)
            self._thread.join()
            self._closing.outcome()

    def _call(self, function: Callable[[], Any], *, always: bool = False) -> _Call:
        if self._closing is not None:
            raise RuntimeError("the worker is closed")
        call = _Call(function, always=always)
        self._calls.put(call)
        return call


def _serve(calls: SimpleQueue[_Call | None]) -> None:
    """The thread. It holds no `ThreadedWorker`, so that it alone keeps none alive."""
    failure: BaseException | None = None
    while (call := calls.get()) is not None:
        if failure is not None and not call.always:
            call.fail(failure)
            continue
        error = call.make()
        if failure is None:
            failure = error
        del call
