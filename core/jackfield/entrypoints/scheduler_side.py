"""The scheduler of a replica with its event loop, built for both topologies. Knows no process and no socket: channels are
handed in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.grammar_side import scheduler_grammars
from jackfield.entrypoints.model_texts import Texts
from jackfield.entrypoints.plan import MAX_RUNNING_REQUESTS, ReplicaPlan
from jackfield.entrypoints.tiers import make_tiers
from jackfield.entrypoints.worker_side import virtual, window_pool
from jackfield.hookspecs import EventLoop, ModelWorker, PrefixCache, SchedulePolicy
from jackfield.ipc.channels import Receiver, Sender
from jackfield.managers.scheduler.config import SchedulerConfig
from jackfield.managers.scheduler.reporting import PluginNumbers
from jackfield.managers.scheduler.scheduler import Scheduler
from jackfield.observability.clock import Clock
from jackfield.stack.errors import PluginStop
from jackfield.stack.loading.load import LoadedStack
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter
from jackfield.stack.runtime.observers import ObserverHub
from jackfield.stack.selection.swap import PolicyStack

OUTPUT_PATIENCE = 8
"""Steps for which a request's ids may wait for company: few enough that the detokenizer has soon caught up at its end."""


@dataclass(frozen=True, kw_only=True)
class SchedulerSide:
    scheduler: Scheduler
    loop: EventLoop


def build_scheduler(
    plan: ReplicaPlan,
    loaded: LoadedStack,
    worker: ModelWorker,
    texts: Texts,
    *,
    inbox: Receiver,
    to_detokenizer: Sender,
    to_main: Sender,
    clock: Clock,
    observers: ObserverHub,
    ledger: FaultLedger,
    meter: Meter,
    doorbell: Callable[[float | None], bool] | None = None,
    ring: Callable[[], None] | None = None,
    plugins: PluginNumbers | None = None,
) -> SchedulerSide:
    """doorbell, ring, plugins: see `Scheduler`. Raises ConfigurationError if a plugin cannot be made, or they do not go
    together."""
    args, config, limits = plan.args, plan.facts.config, worker.limits
    policy_row = loaded.plugin("schedule_policy").selected
    cache_row = loaded.plugin("cache").selected
    max_running = args.max_running_requests or min(MAX_RUNNING_REQUESTS, limits.max_rows - 1)
    if limits.window is not None and not window_pool(loaded):
        worker_row = loaded.plugin("worker").selected
        raise ConfigurationError(
            f"{worker_row.described} keeps a pool for window layers although none may be kept here"
        )
    tiers = make_tiers(plan, loaded, worker, threaded=virtual(clock) is None)
    prefix_cache: PrefixCache = loaded.make(
        "cache",
        page_size=limits.page_size,
        total_slots=limits.total_slots,
        events=observers.listens("jackfield_cache_events"),
        evicted=tiers is not None and any(tier.rule.write == "back" for _, tier in tiers.tiers),
        window=limits.window,
    )
    numbers: dict[str, Any] = {
        "max_running": max_running,
        "page_size": limits.page_size,
        "total_slots": limits.total_slots,
    }
    policy: SchedulePolicy = loaded.make("schedule_policy", **numbers)
    try:
        scheduler = Scheduler(
            SchedulerConfig(
                context_length=min(config.context_length, limits.max_context),
                vocab_size=limits.vocab_size,
                max_running_requests=max_running,
                max_queued_requests=args.max_queued_requests,
                max_prefill_tokens=args.max_prefill_tokens,
                chunked_prefill_size=args.chunked_prefill_size,
                max_consecutive_prefills=args.max_consecutive_prefills,
                schedule_conservativeness=args.schedule_conservativeness,
                request_waiting_timeout=args.request_waiting_timeout,
                request_running_timeout=args.request_running_timeout,
                max_skips=args.max_skips,
                eos_token_ids=config.eos_token_ids,
                seed=plan.seed,
                check_invariants=args.check_invariants,
                report_interval=float(args.metrics_interval),
                collect_metrics=bool(args.metrics),
                policy_needs=frozenset(policy_row.manifest.needs),
                pooling=plan.facts.pooling,
                output_patience=OUTPUT_PATIENCE,
                policy_plugin=policy_row.key,
                cache_plugin=cache_row.key,
                worker_plugin=loaded.plugin("worker").selected.key,
            ),
            worker=worker,
            cache=prefix_cache,
            policy=policy,
            clock=clock,
            inbox=inbox,
            to_detokenizer=to_detokenizer,
            to_main=to_main,
            observers=observers,
            ledger=ledger,
            meter=meter,
            doorbell=doorbell,
            ring=ring,
            policies=PolicyStack(args, plan.stack, numbers),
            plugins=plugins,
            gates=[(row.selected.key, row.make({"vocab_size": limits.vocab_size})) for row in loaded.of("gate")],
            tiers=tiers,
            grammars=scheduler_grammars(plan, loaded, texts, limits, ledger, meter, ring),
        )
    except PluginStop as error:  # a policy that cannot start, a cache that has no sizes
        raise ConfigurationError(f"at start, {error}") from error
    return SchedulerSide(scheduler=scheduler, loop=loaded.make("event_loop", phases=scheduler))
