"""The mover with a thread of its own: it moves a replica and wakes those who wait for its answers, threads and coroutines.

Every touch of the tokenizer manager happens under its lock. Tokenizing happens outside it, and so does the runtime's turn
but for the messages that the manager handles in it: on the inline topology a turn is a whole step of the model, and neither
a new request nor an event loop may wait for that.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from jackfield.entrypoints.calls import ReplicaFailed, ShutDown
from jackfield.ipc.messages import ControlReply
from jackfield.managers.requests.pooled_request import AnyRequest
from jackfield.managers.requests.req_state import ReqState
from jackfield.managers.tokenizer_manager import TokenizerManager

log = logging.getLogger(__name__)


class DrivenRuntime(Protocol):
    """What a driver moves: a replica of either topology, seen from the main process."""

    @property
    def tokenizer_manager(self) -> TokenizerManager: ...

    def turn(self) -> bool:
        """Do what can be done at once. False if there was nothing. Raises when the replica cannot go on."""
        ...

    def wait(self) -> None:
        """Block until there may be something to do. Called without the lock, on the driver's thread only."""
        ...

    def wake(self) -> None:
        """Make `wait` return. Any thread."""
        ...

    def close(self) -> None:
        """End open requests and free everything. Called after the driver's thread has ended."""
        ...


class Driver:
    """`calls.Mover` over any runtime.

    failure      what ended the replica; every waiter is woken and told
    on_failure   called once with it, on the driver's thread
    """

    def __init__(self, runtime: DrivenRuntime, *, on_failure: Callable[[BaseException], None] | None = None) -> None:
        self.lock = runtime.tokenizer_manager.lock
        self.failure: BaseException | None = None
        self._runtime = runtime
        self._on_failure = on_failure
        self._calls: dict[str, DriverCall] = {}
        self._controls: dict[int, threading.Event] = {}
        self._orphans: deque[list[ReqState]] = deque()
        self._stopping = False
        self._closed = False
        self._manager = runtime.tokenizer_manager
        self._manager.on_news = self._on_news
        self._thread = threading.Thread(target=self._run, name="jackfield-driver", daemon=True)
        self._thread.start()

    def submit(self, request: AnyRequest) -> DriverCall:
        prepared = self._manager.prepare(request)
        with self.lock:
            self.check()
            call = DriverCall(self, self._manager.dispatch(prepared))
            for state in call.states:
                self._calls[state.rid] = call
        self._runtime.wake()
        return call

    def control(self, send: Callable[[TokenizerManager], int], timeout: float | None = None) -> ControlReply:
        answered = threading.Event()
        with self.lock:
            self.check()
            control_id = send(self._manager)
            self._controls[control_id] = answered
        self._runtime.wake()
        try:
            if not answered.wait(timeout):
                raise TimeoutError(f"the scheduler did not answer within {timeout} s")
            with self.lock:
                reply = self._manager.control.reply(control_id)
                if reply is None:
                    self.check()
                    raise RuntimeError("a control request was woken without an answer")
                return reply
        finally:
            with self.lock:
                del self._controls[control_id]
                self._manager.control.forget(control_id)

    def abort(self, states: Sequence[ReqState]) -> None:
        """Ask for their end; does not wait for it."""
        with self.lock:
            if self.failure is None and not self._stopping:
                for state in states:
                    self._manager.abort(state)
        self._runtime.wake()

    def orphan(self, states: list[ReqState]) -> None:
        self._orphans.append(states)
        self._runtime.wake()

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def over(self) -> bool:
        """No news will come any more. Set before the last wake of all calls, so that who looks before he waits misses none."""
        return self.failure is not None or self._closed

    def check(self) -> None:
        """Raises ReplicaFailed if the replica cannot go on."""
        if self.failure is not None:
            raise ReplicaFailed(f"the replica has ended: {self.failure}") from self.failure
        if self._stopping:
            raise ShutDown("the engine was shut down")

    def stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._runtime.wake()
        if threading.current_thread() is not self._thread:  # it is, if `on_failure` stops
            self._thread.join()
        try:
            self._runtime.close()
        finally:
            self._closed = True
            self._tell_all()

    def _run(self) -> None:
        try:
            while not self._stopping:
                with self.lock:
                    self._abort_orphans()
                moved = self._runtime.turn()
                with self.lock:
                    self._wake_controls()
                if not moved and not self._stopping:
                    self._runtime.wait()
        except BaseException as error:  # whatever it was, those who wait must hear of it
            self.failure = error
            self._tell_all()
            if self._on_failure is not None:
                self._on_failure(error)
            else:
                # What a process of the replica said last is in the log already.
                log.error("the replica has ended: %s", error, exc_info=not isinstance(error, ReplicaFailed))

    def _tell_all(self) -> None:
        with self.lock:
            _wake(set(self._calls.values()))
            for answered in self._controls.values():
                answered.set()

    def _abort_orphans(self) -> None:
        while self._orphans:
            for state in self._orphans.popleft():
                self._manager.abort(state)

    def _on_news(self, states: Sequence[ReqState]) -> None:
        _wake({call for state in states if (call := self._calls.get(state.rid)) is not None})
        for state in states:
            if state.closed:
                self._calls.pop(state.rid, None)

    def _wake_controls(self) -> None:
        for control_id, answered in self._controls.items():
            if self._manager.control.has_reply(control_id):
                answered.set()


def _wake(calls: Iterable[DriverCall]) -> None:
    """There may be news for them. Coroutines of one event loop are woken together: each message to a loop is a write to a pipe,
    for which this thread gives the interpreter's lock away. Called under the driver's lock."""
    due: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for call in calls:
        if (waiter := call.wake()) is not None:
            due.setdefault(waiter.get_loop(), []).append(waiter)
    for loop, waiters in due.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_end_waits, waiters)


def _end_waits(waiters: Sequence[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():  # whoever waited may have been cancelled
            waiter.set_result(None)


class DriverCall:
    """`calls.Call` of a driver."""

    def __init__(self, driver: Driver, states: list[ReqState]) -> None:
        self.states = states
        self._driver = driver
        self._news = False
        self._sleeper: threading.Event | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def closed(self) -> bool:
        return all(state.closed for state in self.states)

    def wake(self) -> asyncio.Future[None] | None:
        """There may be news. Returns what a coroutine waits for, to be set on its loop. Called under the driver's lock."""
        self._news = True
        if self._sleeper is not None:
            self._sleeper.set()
        waiter, self._waiter = self._waiter, None
        return waiter

    def wait(self) -> None:
        with self._driver.lock:
            sleeper = self._sleeper = None if self._news or self._driver.over else threading.Event()
        if sleeper is not None:
            sleeper.wait()
        self._took()

    async def wait_async(self) -> None:
        with self._driver.lock:
            there = self._news or self._driver.over
            waiter = self._waiter = None if there else asyncio.get_running_loop().create_future()
        if waiter is not None:
            await waiter
        self._took()

    def _took(self) -> None:
        # Before the states are read, so news that come later are news again.
        self._news = False
        self._check()

    def _check(self) -> None:
        # While the replica is being shut down, the ends of open requests are still news.
        if self._driver.over and not self.closed:
            self._driver.check()

    def read(self, reader: Callable[[Sequence[ReqState]], Any]) -> Any:
        with self._driver.lock:
            return reader(self.states)

    def end(self) -> None:
        self._driver.abort(self.states)
        try:
            while not self.closed:
                self.wait()
        except RuntimeError:
            # With the replica gone there is nothing left to end.
            if self._driver.failure is None and not self._driver.stopping:
                raise

    def orphan(self) -> None:
        self._driver.orphan(self.states)
