"""The inline topology: every manager in this process, in-memory channels, and a caller that turns the crank.

The messages are the same as between processes, encoded and decoded. Nothing runs unless `turn` is called.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass, field

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.calls import ReplicaFailed
from jackfield.entrypoints.interrupts import InterruptsHeld
from jackfield.entrypoints.monitor import Monitor
from jackfield.entrypoints.plugin_routes import PluginRoutes
from jackfield.entrypoints.server_info import error_text
from jackfield.hookspecs import EventLoop, ModelCard, ModelWorker, ProcessInfo, StepOutcome, Wake
from jackfield.ipc.channels import Sender
from jackfield.ipc.messages import BatchTextOutput, FinishReason, TextOutput
from jackfield.managers.chat.parsers import Parsers
from jackfield.managers.detokenizer_manager import DetokenizerManager
from jackfield.managers.scheduler.scheduler import Scheduler
from jackfield.managers.template_manager import TemplateManager
from jackfield.managers.tokenizer_manager import TokenizerManager
from jackfield.stack.epochs import StackEpochs
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.observers import ObserverHub
from jackfield.stack.selection.resolution import Resolution

log = logging.getLogger(__name__)


STALL_SECONDS, STALL_TURNS = 10.0, 1000
"""How long there may be work, and turns that neither commit a step nor move a message. One process waits for nobody outside
it, so that only a part that does not do its work looks like this; a slow step is one turn."""
GATE_PAUSE = 0.0005
"""Seconds between two looks at gates when nothing else is to be done."""

STOPPED = "The model runtime has stopped."
"""What the clients of open requests are told; the error itself goes to whoever turned the crank, and to server_info."""


class RuntimeStalled(RuntimeError):
    """Requests are open, and no part has anything to do: a defect, told instead of hanging."""


@dataclass
class _Stillness:
    """Since when no step was committed and no message moved, and for how many turns."""

    since: float
    steps: int
    turns: int = 0


@dataclass(kw_only=True)
class InlineRuntime:
    """All parts of one replica. Not thread-safe: `Engine` holds a lock round every call.

    resolution   what was chosen at the start, and why; stacks: what runs now
    to_main      the channel that the tokenizer manager reads
    failure      what ended the replica: an error out of any part. Half a step may have been done then, so nothing runs any
                 more: open requests have ended with an error, and every further turn raises ReplicaFailed
    """

    args: ServerArgs
    model_name: str
    resolution: Resolution
    stacks: StackEpochs
    tokenizer_manager: TokenizerManager
    template_manager: TemplateManager
    parsers: Parsers
    detokenizer: DetokenizerManager
    scheduler: Scheduler
    loop: EventLoop
    worker: ModelWorker
    observers: ObserverHub
    ledger: FaultLedger
    to_main: Sender
    monitor: Monitor
    card: ModelCard
    routes: tuple[PluginRoutes, ...]
    closed: bool = False
    failure: BaseException | None = None
    _news: threading.Event = field(default_factory=threading.Event)
    _still: _Stillness | None = None

    def turn(self) -> bool:
        """Let every part do what it can once. False if nobody had anything to do.

        Signals wait for its end. Whatever it raises has ended the replica.
        """
        if self.failure is not None:
            self._end_open_requests()
            raise ReplicaFailed(f"the replica has ended: {error_text(self.failure)}") from self.failure
        with InterruptsHeld():
            try:
                return self._turn()
            except BaseException as error:
                self.fail(error)
                raise

    def fail(self, error: BaseException) -> None:
        """End the replica: every open request ends with an error, and no turn does anything any more."""
        self.failure = error
        self._end_open_requests()

    def _turn(self) -> bool:
        ran = self.loop.step() is StepOutcome.RAN
        if self.detokenizer.step() + self.tokenizer_manager.step():
            self._still = None
            return True
        if not ran:
            wake = self.scheduler.wait()
            if wake in (Wake.NOTHING, Wake.GATE):
                self._still = None  # a gate may take its time
            if wake is Wake.NOTHING:
                return False
            if wake is Wake.GATE:
                time.sleep(GATE_PAUSE)
        self._check_progress()
        return True

    def _check_progress(self) -> None:
        """A loop may say for ever that it ran, or that there is nothing to do; the steps that were committed do not lie."""
        now, steps, still = time.monotonic(), self.scheduler.committed_steps, self._still
        if still is None or still.steps != steps:
            self._still = _Stillness(since=now, steps=steps)
            return
        still.turns += 1
        if still.turns > STALL_TURNS and now - still.since > STALL_SECONDS:
            raise RuntimeStalled(
                f"{len(self.tokenizer_manager.rid_to_state)} requests are open, and for {STALL_SECONDS:g} s no step was "
                f"committed (event loop, schedule policy and cache decide that); scheduler: {self.scheduler.state()}"
            )

    def _end_open_requests(self) -> None:
        """Tell every open request its end, as the scheduler would have."""
        finish = FinishReason(type="abort", message=STOPPED, status_code=500, err_type="InternalServerError")
        ends = [TextOutput(rid=rid, finish=finish, closed=True) for rid in list(self.tokenizer_manager.rid_to_state)]
        if not ends:
            return
        self.to_main.send(BatchTextOutput(outputs=ends))
        try:
            self.tokenizer_manager.step()
        except Exception:
            log.exception("the requests that were open could not all be told that the replica has ended")

    def turn_for_open_requests(self) -> None:
        """As `turn`, for a caller who waits for something: raises RuntimeStalled if nothing more will come."""
        if not self.turn():
            raise RuntimeStalled(
                f"{len(self.tokenizer_manager.rid_to_state)} requests are open and no part of the runtime has work; "
                f"scheduler: {self.scheduler.state()}"
            )

    def drain(self) -> None:
        """Turn until no request is open."""
        while self.tokenizer_manager.rid_to_state:
            self.turn_for_open_requests()

    def wait(self) -> None:
        """For a driver's thread: block until `wake`."""
        self._news.wait()
        self._news.clear()

    def wake(self) -> None:
        self._news.set()

    @property
    def stack_hash(self) -> str:
        """SHA-256 over the stack that runs, hex."""
        return self.stacks.stack_hash

    @property
    def processes(self) -> list[tuple[str, int]]:
        return [("inline", os.getpid())]

    def close(self) -> None:
        """End every open request, settle the loop, free the worker. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        try:
            if self.failure is None:
                for state in list(self.tokenizer_manager.rid_to_state.values()):
                    self.tokenizer_manager.abort(state)
                self.drain()
                self.loop.settle()
        finally:
            try:
                self.observers.stopping()
            finally:
                self.monitor.close()
                self.scheduler.close()
                self.worker.close()


def process_info(stack_hash: str) -> ProcessInfo:
    return ProcessInfo(role="inline", pid=os.getpid(), stack_hash=stack_hash)
