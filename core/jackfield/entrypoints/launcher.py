"""From ServerArgs to a running replica: locate the model, resolve the stack, load it, wire the parts."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jackfield.config.device import describe_device
from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.inline import InlineRuntime, process_info
from jackfield.hookspecs import (
    EventLoop,
    ModelSource,
    ModelSourceError,
    ModelWorker,
    PrefixCache,
    SchedulePolicy,
    Shard,
    TokenizerFiles,
    UnsupportedModel,
    VirtualClock,
    WorkerStack,
)
from jackfield.hub.locate import LocatedModel, locate_model
from jackfield.ipc.channels import InMemoryChannel
from jackfield.ipc.messages import ToDetokenizer, ToMain, ToScheduler
from jackfield.managers.detokenizer_manager import DetokenizerManager
from jackfield.managers.sampling_params import check_defaults
from jackfield.managers.scheduler.config import SchedulerConfig
from jackfield.managers.scheduler.scheduler import Scheduler
from jackfield.managers.template_manager import TemplateManager
from jackfield.managers.tokenizer import Tokenizer
from jackfield.managers.tokenizer_manager import ReplicaLimits, TokenizerManager
from jackfield.observability.clock import Clock, ManualClock, MonotonicClock
from jackfield.stack.digest import stack_hash
from jackfield.stack.discovery import discover
from jackfield.stack.facts import gather_model_facts
from jackfield.stack.faults import FaultLedger
from jackfield.stack.loading import LoadedStack, load_stack
from jackfield.stack.observers import ObserverHub
from jackfield.stack.resolution import Resolution, resolve
from jackfield.stack.resolved import ModelFacts

log = logging.getLogger(__name__)

MAX_RUNNING_REQUESTS = 256
"""Most requests at once when nothing else is said; more rows cost memory for their tables and win little on one device."""


@dataclass(frozen=True, kw_only=True)
class _Launch:
    """What the steps of one launch hand on."""

    args: ServerArgs
    located: LocatedModel
    facts: ModelFacts
    resolution: Resolution
    loaded: LoadedStack
    seed: int
    clock: Clock
    source: ModelSource
    files: TokenizerFiles | None
    tokenizer: Tokenizer | None


def launch_inline(
    args: ServerArgs, provenance: Mapping[str, str] | None = None, *, clock: Clock | None = None
) -> InlineRuntime:
    """Everything in this process. `clock` replaces the monotonic one; a `ManualClock` is virtual time.

    Raises ConfigurationError for whatever cannot be had as asked; nothing is left running then.
    """
    if args.topology != "inline":
        raise ConfigurationError(
            "--topology processes: the server's processes are not part of this version; use --topology inline"
        )
    catalogue = discover()
    device = describe_device(args.device)
    # Names are checked before anything is fetched: a misspelt plugin must not cost a download.
    resolve(args, device, None, catalogue, provenance)
    located = locate_model(args.model_path, revision=args.revision, download_dir=args.download_dir)
    facts = gather_model_facts(args, located.path, catalogue, isolate=False, device=device, name=located.name)
    resolution = resolve(args, device, facts, catalogue, provenance)
    seed = secrets.randbits(63) if args.random_seed is None else args.random_seed
    args = resolution.args.model_copy(update={"random_seed": seed})
    logging.getLogger("jackfield").setLevel(args.log_level.upper())
    for note in resolution.notes:
        log.info("%s", note)
    loaded = load_stack(resolution.stack, role="inline")
    try:
        source = loaded.make("loader", path=located.path, overrides=args.json_model_override_args or {})
        files = None if args.skip_tokenizer_init else source.tokenizer()
        launch = _Launch(
            args=args,
            located=located,
            facts=facts,
            resolution=resolution,
            loaded=loaded,
            seed=seed,
            clock=clock or MonotonicClock(),
            source=source,
            files=files,
            tokenizer=None if files is None else Tokenizer.from_files(files),
        )
        sampling_defaults = _sampling_defaults(launch)
        worker = _make_worker(launch)
    except (ModelSourceError, UnsupportedModel) as error:
        raise ConfigurationError(str(error)) from error
    try:
        return _wire(launch, worker, sampling_defaults)
    except BaseException:
        worker.close()
        raise


def _make_worker(launch: _Launch) -> ModelWorker:
    args, config, loaded = launch.args, launch.facts.config, launch.loaded
    needs = loaded.plugin("worker").selected.manifest.needs
    worker: ModelWorker = loaded.make(
        "worker",
        shard=Shard(),
        device=args.device,
        dtype=args.dtype,
        seed=launch.seed,
        page_size=args.page_size,
        max_running=args.max_running_requests or MAX_RUNNING_REQUESTS,
        max_total_tokens=args.max_total_tokens,
        max_context=config.context_length,
        max_tokens=max(args.max_prefill_tokens, args.max_running_requests or MAX_RUNNING_REQUESTS),
        vocab_size=config.vocab_size,
        eos_ids=config.eos_token_ids,
        encode=None if launch.tokenizer is None else _plain_encode(launch.tokenizer),
        clock=_virtual(launch.clock),
        stack=_worker_stack(launch) if needs else None,
    )
    return worker


def _worker_stack(launch: _Launch) -> WorkerStack:
    loaded, facts, stack = launch.loaded, launch.facts, launch.resolution.stack
    assert facts.shape is not None
    assert stack.layout is not None
    attention = {phase: stack.one("attention", phase) for phase in ("prefill", "decode")}
    ops = loaded.plugin("ops").selected
    return WorkerStack(
        source=launch.source,
        config=facts.config.hf,
        shape=facts.shape,
        model=loaded.models()[facts.config.architecture],
        layout=stack.layout,
        attention={
            phase: (plugin.name, loaded.maker("attention", phase=phase))
            for phase, plugin in attention.items()
            if plugin is not None
        },
        ops=loaded.maker("ops"),
        attention_features={
            phase: frozenset(plugin.manifest.features) for phase, plugin in attention.items() if plugin is not None
        },
        ops_encodings=frozenset(ops.manifest.encodings),
    )


def _wire(launch: _Launch, worker: ModelWorker, sampling_defaults: Mapping[str, Any]) -> InlineRuntime:
    args, config, loaded, clock = launch.args, launch.facts.config, launch.loaded, launch.clock
    limits = worker.limits
    policy_row = loaded.plugin("schedule_policy").selected
    cache_row = loaded.plugin("cache").selected
    ledger = FaultLedger(mode=args.plugin_faults, limit=args.plugin_fault_limit)
    observers = ObserverHub(loaded, ledger)
    max_running = args.max_running_requests or min(MAX_RUNNING_REQUESTS, limits.max_rows - 1)
    cache: PrefixCache = loaded.make(
        "cache",
        page_size=limits.page_size,
        total_slots=limits.total_slots,
        events=observers.listens("jackfield_cache_events"),
    )
    policy: SchedulePolicy = loaded.make(
        "schedule_policy", max_running=max_running, page_size=limits.page_size, total_slots=limits.total_slots
    )
    to_scheduler, to_detokenizer, to_main = (InMemoryChannel(types) for types in (ToScheduler, ToDetokenizer, ToMain))
    scheduler = Scheduler(
        SchedulerConfig(
            context_length=min(config.context_length, limits.max_context),
            vocab_size=limits.vocab_size,
            max_running_requests=max_running,
            max_queued_requests=args.max_queued_requests,
            max_prefill_tokens=args.max_prefill_tokens,
            max_skips=args.max_skips,
            eos_token_ids=config.eos_token_ids,
            seed=launch.seed,
            check_invariants=args.check_invariants,
            policy_needs=frozenset(policy_row.manifest.needs),
            policy_plugin=policy_row.key,
            cache_plugin=cache_row.key,
        ),
        worker=worker,
        cache=cache,
        policy=policy,
        clock=clock,
        inbox=to_scheduler,
        to_detokenizer=to_detokenizer,
        to_main=to_main,
        observers=observers,
        ledger=ledger,
    )
    loop: EventLoop = loaded.make("event_loop", phases=scheduler)
    runtime = InlineRuntime(
        args=args,
        model_name=args.served_model_name or launch.facts.name,
        resolution=launch.resolution,
        stack_hash=stack_hash(launch.resolution.stack),
        tokenizer_manager=TokenizerManager(
            tokenizer=launch.tokenizer,
            limits=ReplicaLimits(
                context_length=min(config.context_length, limits.max_context),
                total_slots=limits.total_slots,
                page_size=limits.page_size,
                vocab_size=limits.vocab_size,
            ),
            sampling_defaults=sampling_defaults,
            to_scheduler=to_scheduler,
            inbox=to_main,
            clock=clock,
            observers=observers,
        ),
        template_manager=TemplateManager(launch.files, args.chat_template, launch.tokenizer),
        detokenizer=DetokenizerManager(launch.tokenizer, to_detokenizer, to_main, clock),
        scheduler=scheduler,
        loop=loop,
        worker=worker,
        observers=observers,
        ledger=ledger,
        to_main=to_main,
    )
    observers.started(process_info(runtime.stack_hash))
    return runtime


def _sampling_defaults(launch: _Launch) -> dict[str, Any]:
    """Checked once, here, so that a broken checkpoint or setting is refused at start and not at each request."""
    defaults: dict[str, Any] = {}
    if launch.args.sampling_defaults == "model":
        defaults.update(launch.facts.config.default_sampling_params)
    defaults.update(launch.args.preferred_sampling_params or {})
    check_defaults(defaults)
    return defaults


def _plain_encode(tokenizer: Tokenizer) -> Any:
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


def _virtual(clock: Clock) -> VirtualClock | None:
    return clock if isinstance(clock, ManualClock) else None
