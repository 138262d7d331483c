"""The processes topology, seen from the main process: tokenizer and templates here, scheduler and detokenizer as children."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import zmq

from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.calls import ReplicaFailed
from jackfield.entrypoints.child_life import contents
from jackfield.entrypoints.child_orders import Orders, Ready, Role
from jackfield.entrypoints.grammar_side import request_grammars
from jackfield.entrypoints.main_side import build_main, request_processors, sampling_defaults
from jackfield.entrypoints.model_card import model_card
from jackfield.entrypoints.model_texts import Texts
from jackfield.entrypoints.monitor import Monitor, make_monitor
from jackfield.entrypoints.parsers import make_parsers
from jackfield.entrypoints.plan import make_plan
from jackfield.entrypoints.plugin_routes import OnRoutes, PluginRoutes, plugin_routes
from jackfield.entrypoints.supervisor import Supervisor
from jackfield.hookspecs import ModelCard, ProcessInfo, WorkerLimits
from jackfield.ipc.messages import ToMain, ToScheduler
from jackfield.ipc.run_directory import RunDirectory, socket_path
from jackfield.ipc.zmq_channels import ZmqReceiver, ZmqSender
from jackfield.managers.chat.parsers import Parsers
from jackfield.managers.template_manager import TemplateManager
from jackfield.managers.tokenizer_manager import TokenizerManager
from jackfield.observability.clock import MonotonicClock
from jackfield.stack.digest import stack_hash
from jackfield.stack.epochs import StackEpochs
from jackfield.stack.loading.load import load_stack
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter
from jackfield.stack.runtime.observers import ObserverHub
from jackfield.stack.selection.resolution import Resolution

log = logging.getLogger(__name__)

ROLES: tuple[Role, ...] = ("scheduler", "detokenizer")

OnProgress = Callable[[str, str, int, int], None]
"""Takes the role of the process that tells it, what is being done, how much is done, and how much there is in all."""


@dataclass(kw_only=True)
class ProcessRuntime:
    """One replica of several processes. Driven by `Driver`.

    resolution   what was chosen at the start, and why; stacks: what runs now, the same in every process
    failure      what ended the replica: the death of a child
    """

    args: ServerArgs
    model_name: str
    resolution: Resolution
    stacks: StackEpochs
    tokenizer_manager: TokenizerManager
    template_manager: TemplateManager
    parsers: Parsers
    observers: ObserverHub
    ledger: FaultLedger
    monitor: Monitor
    card: ModelCard
    routes: tuple[PluginRoutes, ...]
    limits: WorkerLimits
    inbox: ZmqReceiver
    supervisor: Supervisor
    resources: ExitStack
    closed: bool = False
    failure: BaseException | None = None
    _closing: threading.Lock = field(default_factory=threading.Lock)

    def turn(self) -> bool:
        if self.failure is not None:
            raise self.failure
        return self.tokenizer_manager.step() > 0

    def wait(self) -> None:
        if self.failure is None:
            self.inbox.wait()

    def wake(self) -> None:
        self.inbox.wake()

    @property
    def stack_hash(self) -> str:
        """SHA-256 over the stack that runs, hex."""
        return self.stacks.stack_hash

    @property
    def processes(self) -> list[tuple[str, int]]:
        return [("main", os.getpid()), *self.supervisor.pids]

    def close(self) -> None:
        """End the open requests, then the children, and remove what they shared. A second call does nothing."""
        with self._closing:
            if self.closed:
                return
            self.closed = True
            deadline = time.monotonic() + self.args.shutdown_timeout
            try:
                with contextlib.suppress(ReplicaFailed):  # told already to whoever waited
                    self._end_open_requests(deadline)
                self.supervisor.stop(max(0.0, deadline - time.monotonic()))
            finally:
                try:
                    self.observers.stopping()
                finally:
                    self.resources.close()

    def _end_open_requests(self, deadline: float) -> None:
        manager = self.tokenizer_manager
        with manager.lock:
            for state in list(manager.rid_to_state.values()):
                manager.abort(state)
        while manager.rid_to_state and (rest := deadline - time.monotonic()) > 0:
            if not self.turn():
                self.inbox.wait(rest)


def launch_processes(
    args: ServerArgs,
    provenance: Mapping[str, str] | None = None,
    *,
    on_progress: OnProgress | None = None,
    on_routes: OnRoutes | None = None,
) -> ProcessRuntime:
    """Scheduler and detokenizer as children, the rest here.

    on_progress   called on a thread of its own with news of the children's start
    on_routes     called with the routes of plugins before the model is up; raises for what cannot be served

    Raises ConfigurationError, with the child's own message where a child refused, and ReplicaFailed if one crashed or was
    killed while starting; nothing is left running then.
    """
    if not sys.executable:
        raise ConfigurationError(
            "--topology processes: this program does not know its Python interpreter (sys.executable is empty), so it can "
            "start no other; use --topology inline"
        )
    began = time.monotonic()
    plan, resolution = make_plan(args, provenance)
    with ExitStack() as resources:  # emptied into the runtime if all goes well
        directory = RunDirectory.create()
        resources.callback(directory.remove)
        context: zmq.Context[Any] = zmq.Context()
        resources.callback(context.term)
        inbox = ZmqReceiver(context, socket_path(directory.path, "main"), ToMain)
        resources.callback(inbox.close)
        failures = _Failures(inbox)
        digest = stack_hash(plan.stack)
        stacks = StackEpochs(plan.stack, digest)
        log.info("process %d runs the stack %s", os.getpid(), digest)
        supervisor = Supervisor(
            [Orders.make(role, plan, sys_path=absolute_import_path()) for role in ROLES],
            directory.path,
            expected=(digest, contents(plan.stack)),
            on_failure=failures.tell,
            on_progress=on_progress,
        )
        supervisor.begin()
        resources.callback(supervisor.stop, 0.0)
        # The children load; meanwhile this process reads its own part.
        loaded = load_stack(plan.stack, role="main")
        ledger = FaultLedger(mode=plan.args.plugin_faults, limit=plan.args.plugin_fault_limit)
        meter = Meter(plan.args.plugin_time_budget_s)
        routes = plugin_routes(loaded, ledger, meter, on_routes)
        observers = ObserverHub(loaded, ledger, _process(digest), meter)
        texts = Texts(loaded, plan.args, plan.model_path)
        _ = texts.tokenizer  # read now, beside the children
        processors = request_processors(loaded)
        parsers = make_parsers(loaded, plan.facts.chat_template, ledger, meter)
        defaults = sampling_defaults(plan, processors)
        clock = MonotonicClock()
        monitor = make_monitor(
            loaded,
            plan.args,
            model_name=plan.model_name,
            stacks=stacks,
            ledger=ledger,
            meter=meter,
            observers=observers,
            role="main",
            clock=clock,
            began=began,
        )
        resources.callback(monitor.close)
        to_scheduler = ZmqSender(context, socket_path(directory.path, "scheduler"), ToScheduler, blocks=False)
        resources.callback(to_scheduler.close)
        limits = _limits(supervisor.wait_until_ready())
        main = build_main(
            plan,
            texts,
            limits,
            defaults,
            processors,
            request_grammars(plan, loaded, texts, ledger, meter),
            parsers,
            to_scheduler=to_scheduler,
            inbox=inbox,
            clock=clock,
            observers=observers,
            monitor=monitor,
            stacks=stacks,
        )
        runtime = ProcessRuntime(
            args=plan.args,
            model_name=plan.model_name,
            resolution=resolution,
            stacks=stacks,
            tokenizer_manager=main.tokenizer_manager,
            template_manager=main.template_manager,
            parsers=main.parsers,
            observers=observers,
            ledger=ledger,
            monitor=monitor,
            card=model_card(plan, texts, limits),
            routes=routes,
            limits=limits,
            inbox=inbox,
            supervisor=supervisor,
            resources=resources.pop_all(),
        )
    try:
        failures.attach(runtime)
        monitor.attach(main.tokenizer_manager, lambda: runtime.processes)
        observers.started()
        monitor.ready()
    except BaseException:
        runtime.close()
        raise
    return runtime


class _Failures:
    """Takes the supervisor's word to the runtime, which may not be there yet when it comes."""

    def __init__(self, inbox: ZmqReceiver) -> None:
        self._inbox = inbox
        self._failure: ReplicaFailed | None = None
        self._runtime: ProcessRuntime | None = None
        self._lock = threading.Lock()

    def tell(self, failure: ReplicaFailed) -> None:
        with self._lock:
            self._failure = failure
            if self._runtime is not None:
                self._runtime.failure = failure
        self._inbox.wake()

    def attach(self, runtime: ProcessRuntime) -> None:
        with self._lock:
            self._runtime = runtime
            runtime.failure = self._failure


def absolute_import_path() -> list[str]:
    """Where this process imports from, so that a child finds the same, whatever its working directory."""
    return [os.path.abspath(entry) for entry in sys.path]


def _limits(ready: Mapping[str, Ready]) -> WorkerLimits:
    limits = ready["scheduler"].limits
    if limits is None:
        raise ReplicaFailed("the scheduler process told no limits")
    return limits


def _process(digest: str) -> ProcessInfo:
    return ProcessInfo(role="main", pid=os.getpid(), stack_hash=digest)
