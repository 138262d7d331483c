"""The examples of the hooks, one after the other. Written by `make docs` from the code; do not edit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TextIO

from jackfield.hookspecs import (
    AttentionBackend,
    AttentionContext,
    BatchScheduled,
    CacheContext,
    CacheEvent,
    EventLoop,
    EventLoopContext,
    Gate,
    GateContext,
    GrammarBackend,
    GrammarContext,
    KVTier,
    KVTierContext,
    LoaderContext,
    LogitsProcessor,
    LogitsProcessorContext,
    MetricsContext,
    MetricsSink,
    ModelEntry,
    ModelSource,
    ModelWorker,
    ModelsContext,
    ObserverContext,
    Ops,
    OpsContext,
    Parser,
    ParserContext,
    PolicyContext,
    PrefixCache,
    ProcessInfo,
    RequestFinished,
    RequestLife,
    RequestReceived,
    Route,
    RouteLevel,
    RoutesContext,
    SchedulePolicy,
    StackChanged,
    StepDecision,
    StepRecord,
    WaitReason,
    WorkerContext,
    hookimpl,
)


class Observer:
    """What the examples of lifecycle hooks call `self`."""

    file: TextIO
    tokens: int
    retractions: int
    rows: list[object]
    reasons: Counter[WaitReason]

    @hookimpl
    def jackfield_process_started(self, process: ProcessInfo) -> None:
        self.file = open(f"{process.role}.log", "a")

    @hookimpl
    def jackfield_process_stopping(self, process: ProcessInfo) -> None:
        self.file.close()

    @hookimpl
    def jackfield_requests_received(self, requests: Sequence[RequestReceived]) -> None:
        self.tokens += sum(request.prompt_tokens for request in requests)

    @hookimpl
    def jackfield_requests_finished(self, requests: Sequence[RequestFinished]) -> None:
        self.rows.extend((request.rid, request.e2e_latency) for request in requests)

    @hookimpl
    def jackfield_batch_scheduled(self, batch: BatchScheduled) -> None:
        self.rows.append((batch.step, len(batch.uids)))

    @hookimpl
    def jackfield_batch_committed(self, record: StepRecord) -> None:
        self.rows.append((record.step, record.ended - record.started))

    @hookimpl
    def jackfield_step_decided(self, decision: StepDecision) -> None:
        if decision.stopped is not None:
            self.reasons[decision.stopped.reason] += 1

    @hookimpl
    def jackfield_requests_explained(self, lives: Sequence[RequestLife]) -> None:
        self.rows.extend(life["id"] for life in lives)

    @hookimpl
    def jackfield_requests_retracted(self, uids: Sequence[int]) -> None:
        self.retractions += len(uids)

    @hookimpl
    def jackfield_cache_events(self, events: Sequence[CacheEvent]) -> None:
        self.rows.extend((event.action, event.length) for event in events)

    @hookimpl
    def jackfield_stack_changed(self, stack: StackChanged) -> None:
        self.rows.append((stack.epoch, stack.stack_hash))


@hookimpl
def jackfield_attention_backend(context: AttentionContext) -> AttentionBackend:
    from my_package.backend import MyBackend  # heavy imports belong inside

    return MyBackend(context)


@hookimpl
def jackfield_prefix_cache(context: CacheContext) -> PrefixCache:
    from my_package.cache import MyCache

    return MyCache(page_size=context.page_size)


@hookimpl
def jackfield_kv_tier(context: KVTierContext) -> KVTier:
    from my_package.tier import MyTier

    return MyTier(context.options, context.block_bytes)


@hookimpl
def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
    from my_package.policy import ShortestFirst

    return ShortestFirst()


@hookimpl
def jackfield_event_loop(context: EventLoopContext) -> EventLoop:
    from my_package.loop import MyLoop

    return MyLoop(context.phases)


@hookimpl
def jackfield_gate(context: GateContext) -> Gate:
    from my_package.gate import MyGate

    return MyGate(context.options)


@hookimpl
def jackfield_grammar_backend(context: GrammarContext) -> GrammarBackend:
    from my_package.grammar import MyGrammars

    return MyGrammars(context.vocab_size, context.stop_ids, context.vocab)


@hookimpl
def jackfield_models(context: ModelsContext) -> Mapping[str, ModelEntry]:
    return {"LlamaForCausalLM": ModelEntry(shape="pkg.shape:describe", model="pkg.model:Llama")}


@hookimpl
def jackfield_model_source(context: LoaderContext) -> ModelSource:
    from my_package.source import MySource

    return MySource(context.path)


@hookimpl
def jackfield_model_worker(context: WorkerContext) -> ModelWorker:
    from my_package.worker import MyWorker

    return MyWorker(context)


@hookimpl
def jackfield_ops(context: OpsContext) -> Ops:
    from my_package.ops import MyOps

    return MyOps(context)


@hookimpl
def jackfield_logits_processor(context: LogitsProcessorContext) -> LogitsProcessor:
    from my_package.allow import AllowList

    return AllowList(context.vocab_size)


@hookimpl
def jackfield_routes(context: RoutesContext) -> Sequence[Route]:
    from my_package.protocol import CompleteAnswer, CompleteBody, complete

    return [
        Route(
            path="/my/complete",
            methods=("POST",),
            level=RouteLevel.KEY,
            handler=complete,
            summary="A prompt goes on.",
            request=CompleteBody,
            response=CompleteAnswer,
            generates=True,
        )
    ]


@hookimpl
def jackfield_parser(context: ParserContext) -> Parser:
    from my_package.format import MyFormat

    return MyFormat()


@hookimpl
def jackfield_metrics_sink(context: MetricsContext) -> MetricsSink:
    from my_package.sink import MySink

    return MySink(context)


class Count:
    def __init__(self) -> None:
        self.finished = 0

    @hookimpl
    def jackfield_requests_finished(self, requests: Sequence[RequestFinished]) -> None:
        self.finished += len(requests)


@hookimpl
def jackfield_observer(context: ObserverContext) -> Count:
    return Count()
