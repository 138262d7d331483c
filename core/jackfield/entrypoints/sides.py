"""The three sides of a replica, each built by one function that both topologies use: what the main process holds, the
scheduler with its worker, and the detokenizer. Knows no process and no socket: channels are handed in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import CHUNKING_OFF, ServerArgs
from jackfield.entrypoints.monitor import Monitor
from jackfield.entrypoints.plan import MAX_RUNNING_REQUESTS, ReplicaPlan
from jackfield.entrypoints.tiers import make_tiers
from jackfield.hookspecs import (
    EventLoop,
    FaultScope,
    ModelSource,
    ModelSourceError,
    ModelWorker,
    PrefixCache,
    ProcessorSource,
    SchedulePolicy,
    Shard,
    TokenizerFiles,
    UnsupportedModel,
    VirtualClock,
    WorkerLimits,
    WorkerStack,
)
from jackfield.ipc.channels import Receiver, Sender
from jackfield.managers.errors import RequestError
from jackfield.managers.request_builder import ReplicaLimits
from jackfield.managers.sampling_params import Processors, check_defaults
from jackfield.managers.scheduler.config import SchedulerConfig
from jackfield.managers.scheduler.reporting import PluginNumbers
from jackfield.managers.scheduler.scheduler import Scheduler
from jackfield.managers.scheduler.threaded_worker import ThreadedWorker
from jackfield.managers.sessions import SessionLimits, Sessions
from jackfield.managers.template_manager import TemplateManager
from jackfield.managers.tokenizer import Tokenizer
from jackfield.managers.tokenizer_manager import TokenizerManager
from jackfield.managers.worker_features import LOGITS_PROCESSORS, WorkerFeatures
from jackfield.observability.clock import Clock, ManualClock
from jackfield.stack.errors import PluginStop
from jackfield.stack.faults import FaultLedger
from jackfield.stack.loading import LoadedStack
from jackfield.stack.observers import ObserverHub
from jackfield.stack.parameters import KIND as LOGITS_PROCESSOR
from jackfield.stack.parameters import BadParameters, RequestParameters, parameters_model, parse_parameters

log = logging.getLogger(__name__)


class Texts:
    """The model's files as one process sees them; each is read when it is first asked for, and only once."""

    def __init__(self, loaded: LoadedStack, args: ServerArgs, model_path: Path) -> None:
        self._loaded = loaded
        self._args = args
        self._model_path = model_path

    @cached_property
    def source(self) -> ModelSource:
        """Raises ConfigurationError."""
        return open_model(self._loaded, self._args, self._model_path)

    @cached_property
    def files(self) -> TokenizerFiles | None:
        """None with --skip-tokenizer-init. Raises ConfigurationError if the model has none that can be read."""
        if self._args.skip_tokenizer_init:
            return None
        try:
            return self.source.tokenizer()
        except ModelSourceError as error:
            raise ConfigurationError(str(error)) from error

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """As `files`."""
        try:
            return None if self.files is None else Tokenizer.from_files(self.files)
        except ModelSourceError as error:
            raise ConfigurationError(str(error)) from error

    @property
    def encode(self) -> Callable[[str], list[int]] | None:
        """For a worker: made now, paid for when it is called."""
        return None if self._args.skip_tokenizer_init else self._encode

    def _encode(self, text: str) -> list[int]:
        assert self.tokenizer is not None
        return self.tokenizer.encode(text, add_special_tokens=False)


def open_model(loaded: LoadedStack, args: ServerArgs, model_path: Path) -> ModelSource:
    """Raises ConfigurationError."""
    try:
        source: ModelSource = loaded.make("loader", path=model_path, overrides=args.json_model_override_args or {})
    except ModelSourceError as error:
        raise ConfigurationError(str(error)) from error
    return source


# the main process


@dataclass(frozen=True, kw_only=True)
class MainSide:
    tokenizer_manager: TokenizerManager
    template_manager: TemplateManager


def sampling_defaults(plan: ReplicaPlan, processors: Processors) -> dict[str, Any]:
    """Checked once, at start, so that a broken checkpoint or setting is refused there and not at each request."""
    defaults: dict[str, Any] = {}
    features = worker_features(plan)
    if plan.args.sampling_defaults == "model":
        defaults.update(plan.facts.config.default_sampling_params)
        for field, feature in features.lacking(check_defaults(defaults)):
            # The checkpoint's wish and nobody's order: said, and no reason to run nothing.
            value = defaults.pop(field)
            log.warning("the model's %s = %s is not applied: worker %r lacks %r", field, value, features.name, feature)
    defaults.update(plan.args.preferred_sampling_params or {})
    features.check_defaults(check_defaults(defaults, processors))
    return defaults


def request_processors(loaded: LoadedStack) -> Processors:
    """Checks a request's `logits_processors` against the models of the plugins that are loaded."""
    parameters = RequestParameters(loaded)

    def checked(given: Any) -> dict[str, dict[str, Any]]:
        try:
            return parameters.checked(given)
        except BadParameters as error:
            raise RequestError(error.message, param=error.param) from error

    return checked


def worker_features(plan: ReplicaPlan) -> WorkerFeatures:
    """What the worker's manifest declares."""
    worker = plan.stack.one("worker")
    assert worker is not None
    return WorkerFeatures(name=worker.name, declared=frozenset(worker.manifest.features))


def build_main(
    plan: ReplicaPlan,
    texts: Texts,
    limits: WorkerLimits,
    defaults: Mapping[str, Any],
    processors: Processors,
    *,
    to_scheduler: Sender,
    inbox: Receiver,
    clock: Clock,
    observers: ObserverHub,
    monitor: Monitor,
) -> MainSide:
    """limits: the worker's; defaults, processors: from `sampling_defaults` and `request_processors`;
    monitor: `attach` it to what comes of this."""
    tokenizer = texts.tokenizer
    return MainSide(
        tokenizer_manager=TokenizerManager(
            tokenizer=tokenizer,
            limits=ReplicaLimits(
                context_length=min(plan.facts.config.context_length, limits.max_context),
                total_slots=limits.total_slots,
                page_size=limits.page_size,
                vocab_size=limits.vocab_size,
                max_answers=plan.args.max_prompts_per_request,
            ),
            sampling_defaults=defaults,
            worker=worker_features(plan),
            processors=processors,
            to_scheduler=to_scheduler,
            inbox=inbox,
            clock=clock,
            observers=observers,
            metrics=monitor.requests,
            sessions=Sessions(
                clock,
                SessionLimits(
                    sessions=plan.args.max_sessions,
                    tokens=plan.args.max_session_tokens,
                    timeout=float(plan.args.session_timeout),
                ),
            ),
        ),
        template_manager=TemplateManager(texts.files, plan.args.chat_template, tokenizer),
    )


# the scheduler


@dataclass(frozen=True, kw_only=True)
class SchedulerSide:
    scheduler: Scheduler
    loop: EventLoop


def make_worker(
    plan: ReplicaPlan,
    loaded: LoadedStack,
    texts: Texts,
    clock: Clock,
    ledger: FaultLedger,
    progress: Callable[[str, int, int], None] | None = None,
) -> ModelWorker:
    """Loads the model; progress: see `WorkerContext`. Raises ConfigurationError."""
    args, config = plan.args, plan.facts.config
    most = args.max_running_requests or MAX_RUNNING_REQUESTS
    manifest = loaded.plugin("worker").selected.manifest
    needs, features = manifest.needs, manifest.features
    try:
        worker: ModelWorker = loaded.make(
            "worker",
            shard=Shard(),
            device=args.device,
            dtype=args.dtype,
            seed=plan.seed,
            page_size=args.page_size,
            max_running=most,
            max_total_tokens=args.max_total_tokens,
            max_context=config.context_length,
            max_tokens=max_step_tokens(args, config.context_length, most),
            vocab_size=config.vocab_size,
            eos_ids=config.eos_token_ids,
            encode=texts.encode,
            clock=_virtual(clock),
            stack=_worker_stack(plan, loaded, texts.source) if needs else None,
            processors=_processor_sources(loaded, ledger) if LOGITS_PROCESSORS in features else (),
            progress=progress,
            deterministic=args.enable_deterministic_inference,
        )
    except (ModelSourceError, UnsupportedModel) as error:
        raise ConfigurationError(str(error)) from error
    # On a virtual clock nothing takes time beside anything else, and a second thread would only make runs differ.
    return ThreadedWorker(worker) if plan.stack.worker_thread and _virtual(clock) is None else worker


def max_step_tokens(args: ServerArgs, context_length: int, max_running: int) -> int:
    """Most tokens of one step, prompts and decodes together. A prompt that is never cut may be as long as the context, and
    share its step with everybody who decodes."""
    if args.chunked_prefill_size == CHUNKING_OFF:
        return max(args.max_prefill_tokens, context_length + max_running)
    return max(args.max_prefill_tokens, max_running)


def build_scheduler(
    plan: ReplicaPlan,
    loaded: LoadedStack,
    worker: ModelWorker,
    *,
    inbox: Receiver,
    to_detokenizer: Sender,
    to_main: Sender,
    clock: Clock,
    observers: ObserverHub,
    ledger: FaultLedger,
    doorbell: Callable[[float | None], bool] | None = None,
    plugins: PluginNumbers | None = None,
) -> SchedulerSide:
    """doorbell, plugins: see `Scheduler`."""
    args, config, limits = plan.args, plan.facts.config, worker.limits
    policy_row = loaded.plugin("schedule_policy").selected
    cache_row = loaded.plugin("cache").selected
    max_running = args.max_running_requests or min(MAX_RUNNING_REQUESTS, limits.max_rows - 1)
    tiers = make_tiers(plan, loaded, worker, threaded=_virtual(clock) is None)
    prefix_cache: PrefixCache = loaded.make(
        "cache",
        page_size=limits.page_size,
        total_slots=limits.total_slots,
        events=observers.listens("jackfield_cache_events"),
        evicted=tiers is not None and any(tier.rule.write == "back" for _, tier in tiers.tiers),
    )
    policy: SchedulePolicy = loaded.make(
        "schedule_policy", max_running=max_running, page_size=limits.page_size, total_slots=limits.total_slots
    )
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
            doorbell=doorbell,
            plugins=plugins,
            gates=[(row.selected.key, row.make({"vocab_size": limits.vocab_size})) for row in loaded.of("gate")],
            tiers=tiers,
        )
    except PluginStop as error:  # a policy that cannot start, a cache that has no sizes
        raise ConfigurationError(f"at start, {error}") from error
    return SchedulerSide(scheduler=scheduler, loop=loaded.make("event_loop", phases=scheduler))


def _worker_stack(plan: ReplicaPlan, loaded: LoadedStack, source: ModelSource) -> WorkerStack:
    facts, stack = plan.facts, plan.stack
    assert facts.shape is not None
    assert stack.layout is not None
    attention = {phase: stack.one("attention", phase) for phase in ("prefill", "decode")}
    ops = loaded.plugin("ops").selected
    return WorkerStack(
        source=source,
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


def _processor_sources(loaded: LoadedStack, ledger: FaultLedger) -> tuple[ProcessorSource, ...]:
    return tuple(
        ProcessorSource(
            instance=plugin.selected.instance,
            make=plugin.make,
            parameters=partial(parse_parameters, parameters_model(plugin.selected)),
            fault=partial(ledger.record, plugin.selected.key, FaultScope.REQUEST),
        )
        for plugin in loaded.of(LOGITS_PROCESSOR)
    )


def _virtual(clock: Clock) -> VirtualClock | None:
    return clock if isinstance(clock, ManualClock) else None
