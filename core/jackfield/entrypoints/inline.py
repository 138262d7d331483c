"""The inline topology: every manager in this process, in-memory channels, and a caller that turns the crank.

The messages are the same as between processes, encoded and decoded. Nothing runs unless `turn` is called.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass, field

from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs import EventLoop, ModelWorker, ProcessInfo, StepOutcome, Wake
from jackfield.managers.detokenizer_manager import DetokenizerManager
from jackfield.managers.scheduler.scheduler import Scheduler
from jackfield.managers.template_manager import TemplateManager
from jackfield.managers.tokenizer_manager import TokenizerManager
from jackfield.stack.faults import FaultLedger
from jackfield.stack.observers import ObserverHub
from jackfield.stack.resolution import Resolution

log = logging.getLogger(__name__)


class RuntimeStalled(RuntimeError):
    """Requests are open, and no part has anything to do: a defect, told instead of hanging."""


@dataclass(kw_only=True)
class InlineRuntime:
    """All parts of one replica. Not thread-safe: `Engine` holds a lock round every call.

    resolution   what was chosen, and why; stack_hash: SHA-256 over the chosen stack, hex
    """

    args: ServerArgs
    model_name: str
    resolution: Resolution
    stack_hash: str
    tokenizer_manager: TokenizerManager
    template_manager: TemplateManager
    detokenizer: DetokenizerManager
    scheduler: Scheduler
    loop: EventLoop
    worker: ModelWorker
    observers: ObserverHub
    ledger: FaultLedger
    closed: bool = False
    _news: threading.Event = field(default_factory=threading.Event)

    def turn(self) -> bool:
        """Let every part do what it can once. False if nobody had anything to do."""
        ran = self.loop.step() is StepOutcome.RAN
        moved = self.detokenizer.step() + self.tokenizer_manager.step()
        if ran or moved:
            return True
        return self.scheduler.wait() is not Wake.NOTHING

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
    def processes(self) -> list[tuple[str, int]]:
        return [("inline", os.getpid())]

    def close(self) -> None:
        """End every open request, settle the loop, free the worker. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        try:
            for state in list(self.tokenizer_manager.rid_to_state.values()):
                self.tokenizer_manager.abort(state)
            self.drain()
            self.loop.settle()
        finally:
            self.observers.notify("jackfield_process_stopping", process=process_info(self.stack_hash))
            self.worker.close()


def process_info(stack_hash: str) -> ProcessInfo:
    return ProcessInfo(role="inline", pid=os.getpid(), stack_hash=stack_hash)
