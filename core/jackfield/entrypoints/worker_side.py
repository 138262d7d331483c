"""The worker of a replica: what it is told of the run, and the model, attention and operators that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from jackfield.config.arg_types import CHUNKING_OFF
from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.model_texts import Texts
from jackfield.entrypoints.plan import MAX_RUNNING_REQUESTS, ReplicaPlan
from jackfield.entrypoints.starting import give_memory_back
from jackfield.entrypoints.weight_cache import weight_cache
from jackfield.entrypoints.worker_meter import metered_worker
from jackfield.hookspecs import (
    BatchFault,
    FaultScope,
    InsufficientMemory,
    ModelSource,
    ModelSourceError,
    ModelWorker,
    ProcessorSource,
    Shard,
    UnsupportedModel,
    VirtualClock,
    WorkerStack,
)
from jackfield.hookspecs.common import GRAPH
from jackfield.managers.fields.worker_features import LOGITS_PROCESSORS
from jackfield.managers.scheduler.threaded_worker import ThreadedWorker
from jackfield.observability.clock import Clock, ManualClock
from jackfield.stack.loading.load import LoadedPlugin, LoadedStack, Maker
from jackfield.stack.loading.parameters import KIND as LOGITS_PROCESSOR
from jackfield.stack.loading.parameters import parameters_model, parse_parameters
from jackfield.stack.resolved import WeightForm
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter
from jackfield.stack.selection.memory import memory_fields

WINDOW = "window"
"""Feature of a cache: it keeps the KV of window layers apart."""


def make_worker(
    plan: ReplicaPlan,
    loaded: LoadedStack,
    texts: Texts,
    clock: Clock,
    ledger: FaultLedger,
    meter: Meter,
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
            clock=virtual(clock),
            stack=_worker_stack(plan, loaded, texts.source, meter) if needs else None,
            processors=_processor_sources(loaded, ledger, meter) if LOGITS_PROCESSORS in features else (),
            progress=progress,
            deterministic=args.enable_deterministic_inference,
            window_pool=window_pool(loaded),
            pooling=plan.facts.pooling,
            warm_up=not args.skip_server_warmup,
            **memory_fields(args),
            **(graphs(args) if GRAPH in features else {}),
        )
    except (ModelSourceError, UnsupportedModel, InsufficientMemory) as error:
        raise ConfigurationError(str(error)) from error
    give_memory_back()
    for plugin in loaded.of("attention"):
        meter.forget(plugin.selected.key)  # what the start tried is no request's
    worker = metered_worker(meter, loaded.plugin("worker").selected.key, worker)
    # On a virtual clock nothing takes time beside anything else, and a second thread would only make runs differ.
    return ThreadedWorker(worker) if plan.stack.worker_thread and virtual(clock) is None else worker


def graphs(args: ServerArgs) -> dict[str, Any]:
    """The fields of `WorkerContext` that say what is recorded."""
    rows = () if args.disable_cuda_graph else args.cuda_graph_bs or None
    return {"graph_rows": rows, "graph_max_rows": args.cuda_graph_max_bs}


def window_pool(loaded: LoadedStack) -> bool:
    """Whether window layers may have a smaller pool: the cache tells their KV apart, and no KV tier keeps blocks, which are of
    all layers together."""
    return WINDOW in loaded.plugin("cache").selected.manifest.features and not loaded.of("kv_tier")


def max_step_tokens(args: ServerArgs, context_length: int, max_running: int) -> int:
    """Most tokens of one step, prompts and decodes together. A prompt that is never cut may be as long as the context, and
    share its step with everybody who decodes."""
    if args.chunked_prefill_size == CHUNKING_OFF:
        return max(args.max_prefill_tokens, context_length + max_running)
    return max(args.max_prefill_tokens, max_running)


def _worker_stack(plan: ReplicaPlan, loaded: LoadedStack, source: ModelSource, meter: Meter) -> WorkerStack:
    facts, stack = plan.facts, plan.stack
    assert facts.shape is not None
    assert stack.layout is not None
    attention = {phase: stack.one("attention", phase) for phase in ("prefill", "decode")}
    form = stack.weights or WeightForm()
    makers = {plugin.selected.key: _metered_maker(meter, plugin) for plugin in loaded.of("attention")}
    return WorkerStack(
        source=source,
        config=facts.config.hf,
        shape=facts.shape,
        model=loaded.models()[facts.config.architecture],
        layout=stack.layout,
        attention={
            phase: (plugin.name, makers[plugin.key]) for phase, plugin in attention.items() if plugin is not None
        },
        ops=loaded.maker("ops"),
        attention_features={
            phase: frozenset(plugin.manifest.features) for phase, plugin in attention.items() if plugin is not None
        },
        ops_features=frozenset(loaded.plugin("ops").selected.manifest.features),
        ops_encodings=frozenset({"plain", *form.packed}),
        packed_only=form.strict,
        quantization=form.quantization,
        weight_cache=weight_cache(plan.args, loaded.plugin("ops").selected, loaded.plugin("loader").selected),
    )


def _metered_maker(meter: Meter, plugin: LoadedPlugin) -> Maker:
    def make(fields: Mapping[str, Any]) -> Any:
        return meter.watch(plugin.selected.key, plugin.make(fields), expected=(BatchFault,))

    return make


def _processor_sources(loaded: LoadedStack, ledger: FaultLedger, meter: Meter) -> tuple[ProcessorSource, ...]:
    return tuple(
        ProcessorSource(
            instance=plugin.selected.instance,
            make=_metered_maker(meter, plugin),
            parameters=partial(parse_parameters, parameters_model(plugin.selected)),
            fault=partial(ledger.record, plugin.selected.key, FaultScope.REQUEST),
        )
        for plugin in loaded.of(LOGITS_PROCESSOR)
    )


def virtual(clock: Clock) -> VirtualClock | None:
    """The clock, if it is one that a simulated worker moves."""
    return clock if isinstance(clock, ManualClock) else None
