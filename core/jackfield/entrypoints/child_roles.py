"""What each role of a child process is made of: its plugins, its side of the replica, its sockets, one turn of its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import zmq

from jackfield.entrypoints.model_texts import Texts
from jackfield.entrypoints.plan import ReplicaPlan
from jackfield.entrypoints.scheduler_side import build_scheduler
from jackfield.entrypoints.worker_side import make_worker
from jackfield.hookspecs import ProcessInfo, StackChanged, StepOutcome, WorkerLimits
from jackfield.ipc.messages import HookCost, PluginFaults, PluginReport, ToDetokenizer, ToMain, ToScheduler
from jackfield.ipc.run_directory import socket_path
from jackfield.ipc.zmq_channels import ZmqReceiver, ZmqSender
from jackfield.managers.detokenizer_manager import DetokenizerManager
from jackfield.observability.clock import MonotonicClock
from jackfield.stack.loading.load import load_stack
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter
from jackfield.stack.runtime.observers import ObserverHub

Progress = Callable[[str, int, int], None]
"""Takes what is being done at the start, how much of it is done, and how much there is; see `WorkerContext`."""


class Part(Protocol):
    """limits: the worker's, if there is one here."""

    observers: ObserverHub
    limits: WorkerLimits | None

    def turn(self) -> None:
        """Do what there is to do, or block until there may be something."""
        ...

    def wake(self) -> None:
        """Make a blocked `turn` return. Any thread, signal handlers too."""
        ...

    def settle(self) -> None:
        """Finish what is under way."""
        ...

    def close(self) -> None: ...


class SchedulerPart:
    """Scheduler, loop and worker. The sockets are bound before the model is loaded, so that nobody waits for them later."""

    def __init__(self, plan: ReplicaPlan, directory: Path, process: ProcessInfo, progress: Progress) -> None:
        loaded = load_stack(plan.stack, role="scheduler")
        ledger = FaultLedger(mode=plan.args.plugin_faults, limit=plan.args.plugin_fault_limit)
        meter = Meter(plan.args.plugin_time_budget_s)
        self.observers = ObserverHub(loaded, ledger, process, meter, threads=False)
        self._context: zmq.Context[Any] = zmq.Context()
        self._inbox = ZmqReceiver(self._context, socket_path(directory, "scheduler"), ToScheduler)
        self._outboxes = (
            ZmqSender(self._context, socket_path(directory, "detokenizer"), ToDetokenizer, blocks=True),
            ZmqSender(self._context, socket_path(directory, "main"), ToMain, blocks=True),
        )
        clock = MonotonicClock()
        texts = Texts(loaded, plan.args, plan.model_path)
        self._worker = make_worker(plan, loaded, texts, clock, ledger, meter, progress)
        self.limits: WorkerLimits | None = self._worker.limits
        side = build_scheduler(
            plan,
            loaded,
            self._worker,
            texts,
            inbox=self._inbox,
            to_detokenizer=self._outboxes[0],
            to_main=self._outboxes[1],
            clock=clock,
            observers=self.observers,
            ledger=ledger,
            doorbell=self._inbox.wait,
            ring=self._inbox.wake,
            meter=meter,
            plugins=lambda: (ledger.snapshot(), meter.costs()),
        )
        self._scheduler, self._loop = side.scheduler, side.loop
        self.wake = self._inbox.wake

    def turn(self) -> None:
        if self._loop.step() is StepOutcome.IDLE:
            self._scheduler.wait()

    def settle(self) -> None:
        self._loop.settle()

    def close(self) -> None:
        try:
            self._scheduler.close()
            self._worker.close()
        finally:
            for end in (self._inbox, *self._outboxes):
                end.close()
            self._context.term()


class DetokenizerPart:
    def __init__(self, plan: ReplicaPlan, directory: Path, process: ProcessInfo, progress: Progress) -> None:
        loaded = load_stack(plan.stack, role="detokenizer")
        self._ledger = FaultLedger(mode=plan.args.plugin_faults, limit=plan.args.plugin_fault_limit)
        self._meter = Meter(plan.args.plugin_time_budget_s)
        self.observers = ObserverHub(loaded, self._ledger, process, self._meter, threads=False)
        self._told = PluginReport(role="detokenizer")
        self.limits: WorkerLimits | None = None
        self._context: zmq.Context[Any] = zmq.Context()
        self._inbox = ZmqReceiver(self._context, socket_path(directory, "detokenizer"), ToDetokenizer)
        self._outbox = ZmqSender(self._context, socket_path(directory, "main"), ToMain, blocks=True)
        tokenizer = Texts(loaded, plan.args, plan.model_path).tokenizer
        self._manager = DetokenizerManager(
            tokenizer, self._inbox, self._outbox, MonotonicClock(), on_stack=self._on_stack
        )
        self.wake = self._inbox.wake

    def turn(self) -> None:
        if not self._manager.step():
            self._tell_plugins()
            self._inbox.wait()

    def _on_stack(self, change: StackChanged) -> None:
        self.observers.notify("jackfield_stack_changed", stack=change)

    def _tell_plugins(self) -> None:
        """Observers are the only plugins here, and are called at start and end: nothing to tell in most turns."""
        report = PluginReport(
            role="detokenizer",
            faults={name: PluginFaults(**account) for name, account in self._ledger.snapshot().items()},
            hooks={
                plugin: {hook: HookCost(**row) for hook, row in rows.items()}
                for plugin, rows in self._meter.costs().items()
            },
        )
        if report != self._told:
            self._told = report
            self._outbox.send(report)

    def settle(self) -> None:
        """Nothing is under way between two turns."""

    def close(self) -> None:
        self._inbox.close()
        self._outbox.close()
        self._context.term()


ROLES: Mapping[str, Callable[[ReplicaPlan, Path, ProcessInfo, Progress], Part]] = MappingProxyType(
    {"scheduler": SchedulerPart, "detokenizer": DetokenizerPart}
)
