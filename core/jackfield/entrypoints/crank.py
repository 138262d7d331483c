"""The mover of the inline topology: whichever caller waits turns the runtime, under a lock, so that callers in several
threads or coroutines share one continuous batch. Nothing runs while nobody waits."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from jackfield.entrypoints.calls import ShutDown
from jackfield.entrypoints.inline import InlineRuntime
from jackfield.entrypoints.interrupts import InterruptsHeld
from jackfield.ipc.messages import ControlReply
from jackfield.managers.requests.pooled_request import AnyRequest
from jackfield.managers.requests.req_state import ReqState
from jackfield.managers.tokenizer_manager import TokenizerManager
from jackfield.stack.errors import PluginStop


class Crank:
    """`calls.Mover` over an inline runtime."""

    def __init__(self, runtime: InlineRuntime) -> None:
        self._runtime = runtime
        self._manager = runtime.tokenizer_manager
        self._lock = threading.Lock()
        self._orphans: deque[list[ReqState]] = deque()
        self._pump: asyncio.Future[None] | None = None

    def submit(self, request: AnyRequest) -> CrankCall:
        prepared = self._manager.prepare(request)
        with self._lock:
            self._check_open()
            states: list[ReqState] = []
            try:
                with InterruptsHeld():
                    states = self._manager.dispatch(prepared)
            except BaseException as error:
                self.orphan(states)  # the caller will never know of them
                if isinstance(error, PluginStop):
                    self._runtime.fail(error)
                raise
            return CrankCall(self, states)

    def control(self, send: Callable[[TokenizerManager], int], timeout: float | None = None) -> ControlReply:
        with self._lock:
            self._check_open()
            self._abort_orphans()
            control_id = send(self._manager)
        # Some answers take long, a flush that waits for instance: others may submit and abort between two turns.
        while True:
            with self._lock:
                self._check_open()
                self._abort_orphans()
                if (reply := self._manager.control.reply(control_id)) is not None:
                    return reply
                self._runtime.turn()

    def stop(self) -> None:
        with self._lock:
            self._runtime.close()

    # for CrankCall

    def turn(self, states: list[ReqState]) -> None:
        with self._lock:
            self._abort_orphans()
            # Another thread may have turned for us while this one waited for the lock.
            if not all(state.closed for state in states):
                self._runtime.turn_for_open_requests()

    async def turn_async(self, states: list[ReqState]) -> None:
        """One turn in a thread, shared by all coroutines that wait: the first to come turns, the others wait for it."""
        pump = self._pump
        if pump is None or pump.done() or pump.get_loop() is not asyncio.get_running_loop():
            pump = asyncio.ensure_future(asyncio.to_thread(self.turn, states))
            self._pump = pump
        # Shielded: a cancelled waiter must not take the turn away from the others.
        await asyncio.shield(pump)

    def end(self, states: list[ReqState]) -> None:
        with self._lock:
            if self._runtime.closed:
                return
            for state in states:
                self._manager.abort(state)
            while not all(state.closed for state in states):
                self._runtime.turn_for_open_requests()

    def orphan(self, states: list[ReqState]) -> None:
        # No lock: a finalizer may run on a thread that holds it. The next turn reads the note.
        self._orphans.append(states)

    def read(self, states: Sequence[ReqState], reader: Callable[[Sequence[ReqState]], Any]) -> Any:
        with self._lock:
            return reader(states)

    def _abort_orphans(self) -> None:
        while self._orphans:
            for state in self._orphans.popleft():
                self._manager.abort(state)

    def _check_open(self) -> None:
        if self._runtime.closed:
            raise ShutDown("the engine was shut down")


class CrankCall:
    """`calls.Call` of a crank."""

    def __init__(self, crank: Crank, states: list[ReqState]) -> None:
        self.states = states
        self._crank = crank

    @property
    def closed(self) -> bool:
        return all(state.closed for state in self.states)

    def wait(self) -> None:
        self._crank.turn(self.states)

    async def wait_async(self) -> None:
        await self._crank.turn_async(self.states)

    def read(self, reader: Callable[[Sequence[ReqState]], Any]) -> Any:
        return self._crank.read(self.states, reader)

    def end(self) -> None:
        self._crank.end(self.states)

    def orphan(self) -> None:
        self._crank.orphan(self.states)
