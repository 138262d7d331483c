"""From ServerArgs to a running replica of either topology."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from jackfield.config.openmp import openmp_defaults
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.grammar_side import request_grammars
from jackfield.entrypoints.inline import InlineRuntime, process_info
from jackfield.entrypoints.main_side import build_main, request_processors, sampling_defaults
from jackfield.entrypoints.model_card import model_card
from jackfield.entrypoints.model_texts import Texts
from jackfield.entrypoints.monitor import make_monitor
from jackfield.entrypoints.parsers import make_parsers
from jackfield.entrypoints.plan import ReplicaPlan, make_plan, with_topology
from jackfield.entrypoints.plugin_routes import OnRoutes, PluginRoutes, plugin_routes
from jackfield.entrypoints.progress import StartProgress
from jackfield.entrypoints.scheduler_side import build_scheduler
from jackfield.entrypoints.starting import collector_paused
from jackfield.entrypoints.worker_side import make_worker
from jackfield.hookspecs import ModelWorker
from jackfield.ipc.channels import InMemoryChannel
from jackfield.ipc.messages import ToDetokenizer, ToMain, ToScheduler
from jackfield.managers.chat.parsers import Parsers
from jackfield.managers.detokenizer_manager import DetokenizerManager
from jackfield.managers.fields.grammar import Grammars
from jackfield.managers.fields.sampling_params import Processors
from jackfield.observability.clock import Clock, MonotonicClock
from jackfield.stack.digest import stack_hash
from jackfield.stack.epochs import StackEpochs
from jackfield.stack.loading.load import INLINE, LoadedStack, load_stack
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter
from jackfield.stack.runtime.observers import ObserverHub
from jackfield.stack.selection.resolution import Resolution

if TYPE_CHECKING:
    from jackfield.entrypoints.processes import ProcessRuntime

    Runtime = InlineRuntime | ProcessRuntime

OFFLINE = "the default of Engine and `jackfield generate`"


def launch(
    args: ServerArgs, provenance: Mapping[str, str] | None = None, *, on_routes: OnRoutes | None = None
) -> Runtime:
    """The topology that `args` name; if they name none, `jackfield serve` has said so before, and all others run inline.

    on_routes   called with the routes of plugins before the model is up, and raises for what cannot be served; None: there
                is no server, and none are made

    Raises ConfigurationError for whatever cannot be had as asked, and ReplicaFailed if a process died while starting;
    nothing is left running then.
    """
    args, provenance = with_topology(args, provenance, "inline", OFFLINE)
    if args.topology != "processes":
        return launch_inline(args, provenance, on_routes=on_routes)
    # Imported here, as nobody else needs sockets and supervision.
    from jackfield.entrypoints.processes import launch_processes

    with StartProgress() as progress, collector_paused():
        return launch_processes(args, provenance, on_progress=lambda _role, *news: progress(*news), on_routes=on_routes)


def launch_inline(
    args: ServerArgs,
    provenance: Mapping[str, str] | None = None,
    *,
    clock: Clock | None = None,
    on_routes: OnRoutes | None = None,
) -> InlineRuntime:
    """Everything in this process. `clock` replaces the monotonic one; a `ManualClock` is virtual time.

    Where torch is not imported yet, the defaults for OpenMP go into this process's environment: see `config.openmp`.

    Raises ConfigurationError for whatever cannot be had as asked; nothing is left running then.
    """
    with collector_paused():
        return _launch_inline(args, provenance, clock, on_routes)


def _launch_inline(
    args: ServerArgs, provenance: Mapping[str, str] | None, clock: Clock | None, on_routes: OnRoutes | None
) -> InlineRuntime:
    began = time.monotonic()
    if "torch" not in sys.modules:  # once it is imported, OpenMP reads them no more
        os.environ.update(openmp_defaults(os.environ))
    args, provenance = with_topology(args, provenance, "inline", OFFLINE)
    clock = clock or MonotonicClock()
    plan, resolution = make_plan(args, provenance)
    loaded = load_stack(plan.stack, role=INLINE)
    texts = Texts(loaded, plan.args, plan.model_path)
    _ = texts.tokenizer  # before the weights, which take longer
    processors = request_processors(loaded)
    defaults = sampling_defaults(plan, processors)
    ledger = FaultLedger(mode=plan.args.plugin_faults, limit=plan.args.plugin_fault_limit)
    meter = Meter(plan.args.plugin_time_budget_s)
    parsers = make_parsers(loaded, plan.facts.chat_template, ledger, meter)
    routes = plugin_routes(loaded, ledger, meter, on_routes)
    with StartProgress() as progress:
        worker = make_worker(plan, loaded, texts, clock, ledger, meter, progress)
    try:
        grammars = request_grammars(plan, loaded, texts, ledger, meter)
        return _wire(
            plan,
            resolution,
            loaded,
            texts,
            worker,
            defaults,
            processors,
            grammars,
            parsers,
            routes,
            ledger,
            meter,
            clock,
            began,
        )
    except BaseException:
        worker.close()
        raise


def _wire(
    plan: ReplicaPlan,
    resolution: Resolution,
    loaded: LoadedStack,
    texts: Texts,
    worker: ModelWorker,
    defaults: Mapping[str, object],
    processors: Processors,
    grammars: Grammars,
    parsers: Parsers,
    routes: tuple[PluginRoutes, ...],
    ledger: FaultLedger,
    meter: Meter,
    clock: Clock,
    began: float,
) -> InlineRuntime:
    to_scheduler, to_detokenizer, to_main = (InMemoryChannel(types) for types in (ToScheduler, ToDetokenizer, ToMain))
    stacks = StackEpochs(plan.stack, stack_hash(plan.stack))
    observers = ObserverHub(loaded, ledger, process_info(stacks.stack_hash), meter)
    side = build_scheduler(
        plan,
        loaded,
        worker,
        texts,
        inbox=to_scheduler,
        to_detokenizer=to_detokenizer,
        to_main=to_main,
        clock=clock,
        observers=observers,
        ledger=ledger,
        meter=meter,
    )
    monitor = make_monitor(
        loaded,
        plan.args,
        model_name=plan.model_name,
        stacks=stacks,
        ledger=ledger,
        meter=meter,
        observers=observers,
        role="inline",
        clock=clock,
        began=began,
    )
    try:
        main = build_main(
            plan,
            texts,
            worker.limits,
            defaults,
            processors,
            grammars,
            parsers,
            to_scheduler=to_scheduler,
            inbox=to_main,
            clock=clock,
            observers=observers,
            monitor=monitor,
            stacks=stacks,
        )
    except BaseException:
        monitor.close()
        raise
    runtime = InlineRuntime(
        args=plan.args,
        model_name=plan.model_name,
        resolution=resolution,
        stacks=stacks,
        tokenizer_manager=main.tokenizer_manager,
        template_manager=main.template_manager,
        parsers=main.parsers,
        detokenizer=DetokenizerManager(texts.tokenizer, to_detokenizer, to_main, clock),
        scheduler=side.scheduler,
        loop=side.loop,
        worker=worker,
        observers=observers,
        ledger=ledger,
        to_main=to_main,
        monitor=monitor,
        card=model_card(plan, texts, worker.limits),
        routes=routes,
    )
    monitor.attach(main.tokenizer_manager, lambda: runtime.processes)
    observers.started()
    monitor.ready()
    return runtime
