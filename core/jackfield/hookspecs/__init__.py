"""The contract: what a plugin imports. Standard library, NumPy and pluggy only; nothing else of Jackfield.

One module a kind, each with its hook, its base class or protocol, and the frozen records that cross the seam.

Nothing is imported before it is asked for: a program that reads the table of kinds need not wait for NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jackfield.hookspecs.attention import (
        AttentionBackend,
        AttentionBatch,
        AttentionContext,
        AttentionLayer,
        AttentionLimits,
        AttentionMode,
        AttentionPlan,
        AttentionSpecs,
        HostLengths,
    )
    from jackfield.hookspecs.cache import (
        CacheContext,
        CacheEvent,
        CacheKey,
        CacheSizes,
        Committed,
        Evicted,
        Lease,
        PrefixCache,
        PrefixCacheSpecs,
        PrefixForest,
        window_floor,
    )
    from jackfield.hookspecs.common import (
        NO_SLOTS,
        Amounts,
        BatchFault,
        FaultScope,
        Freed,
        Need,
        PluginContext,
        Problem,
        RequestFault,
    )
    from jackfield.hookspecs.decisions import (
        WAIT_NUMBERS,
        Advance,
        PassedOver,
        RequestLife,
        Retraction,
        StepDecision,
        WaitReason,
    )
    from jackfield.hookspecs.device import DeviceDescription
    from jackfield.hookspecs.event_loop import (
        EventLoop,
        EventLoopContext,
        EventLoopSpecs,
        InFlight,
        SchedulerPhases,
        StepOutcome,
        Wake,
        Want,
    )
    from jackfield.hookspecs.gate import Gate, GateAnswer, GateContext, GateEvent, GateRequest, GateSpecs
    from jackfield.hookspecs.kinds import KINDS, Kind
    from jackfield.hookspecs.kv import CORE_LAYOUTS, HND_PAGED, NHD_PAGED, KVGroup, KVLayout, KVTensors, KVTensorSpec
    from jackfield.hookspecs.kv_tier import KVTier, KVTierContext, KVTierSpecs, TierRule, TierUse
    from jackfield.hookspecs.loader import (
        LoaderContext,
        LoaderSpecs,
        ModelSource,
        ModelSourceError,
        Shard,
        TokenizerFiles,
        Weight,
    )
    from jackfield.hookspecs.logits_processor import (
        LogitsProcessor,
        LogitsProcessorContext,
        LogitsProcessorSpecs,
        LogitsRow,
        ProcessorSource,
    )
    from jackfield.hookspecs.logprobs import Logprobs, LogprobSpec
    from jackfield.hookspecs.markers import hookimpl, hookspec
    from jackfield.hookspecs.metrics import (
        Exposition,
        Metric,
        MetricsContext,
        MetricsSink,
        MetricsSpecs,
        Sample,
        Scrape,
    )
    from jackfield.hookspecs.model import (
        Builder,
        Embedding,
        ForwardContext,
        Head,
        LayerNorm,
        Linear,
        LoadReport,
        Model,
        ModelEntry,
        ModelsContext,
        ModelShape,
        ModelSpecs,
        Norm,
        Rotary,
        UnsupportedModel,
    )
    from jackfield.hookspecs.mover import KVMover, Moved
    from jackfield.hookspecs.observer import (
        LIFECYCLE_HOOKS,
        BatchScheduled,
        LifecycleSpecs,
        ObserverContext,
        ObserverSpecs,
        ProcessInfo,
        RequestFinished,
        RequestReceived,
        StackChanged,
    )
    from jackfield.hookspecs.ops import (
        DenseWeight,
        Ops,
        OpsContext,
        OpsSpecs,
        PostAttention,
        PreAttention,
        SamplingRows,
    )
    from jackfield.hookspecs.pooling import CLASSIFICATION, EMBEDDING, Pooling
    from jackfield.hookspecs.schedule_policy import (
        HOLD,
        Chosen,
        DecodeTurn,
        PolicyContext,
        SchedulePolicy,
        SchedulePolicySpecs,
        StepBudget,
        StepRecord,
    )
    from jackfield.hookspecs.specs import SPECS
    from jackfield.hookspecs.tables import RequestTable, SchedulerView, tenant_code
    from jackfield.hookspecs.worker import (
        Launched,
        ModelWorker,
        ModelWorkerBatch,
        PendingResult,
        RowOpen,
        RowWrites,
        VirtualClock,
        WindowWrites,
        WorkerContext,
        WorkerLimits,
        WorkerOp,
        WorkerReply,
        WorkerResult,
        WorkerSpecs,
        WorkerStack,
    )

_MODULES = (
    "kinds",
    "markers",
    "kv",
    "pooling",
    "device",
    "common",
    "loader",
    "attention",
    "model",
    "cache",
    "decisions",
    "event_loop",
    "gate",
    "kv_tier",
    "logits_processor",
    "logprobs",
    "metrics",
    "mover",
    "observer",
    "ops",
    "schedule_policy",
    "tables",
    "worker",
    "specs",
)
"""Where a name is looked for, in this order: what needs no NumPy comes first, then what a look at the
stack needs."""

__all__ = [
    "CLASSIFICATION",
    "CORE_LAYOUTS",
    "EMBEDDING",
    "HND_PAGED",
    "HOLD",
    "KINDS",
    "LIFECYCLE_HOOKS",
    "NHD_PAGED",
    "NO_SLOTS",
    "SPECS",
    "WAIT_NUMBERS",
    "Advance",
    "Amounts",
    "AttentionBackend",
    "AttentionBatch",
    "AttentionContext",
    "AttentionLayer",
    "AttentionLimits",
    "AttentionMode",
    "AttentionPlan",
    "AttentionSpecs",
    "BatchFault",
    "BatchScheduled",
    "Builder",
    "CacheContext",
    "CacheEvent",
    "CacheKey",
    "CacheSizes",
    "Chosen",
    "Committed",
    "DecodeTurn",
    "DenseWeight",
    "DeviceDescription",
    "Embedding",
    "EventLoop",
    "EventLoopContext",
    "EventLoopSpecs",
    "Evicted",
    "Exposition",
    "FaultScope",
    "ForwardContext",
    "Freed",
    "Gate",
    "GateAnswer",
    "GateContext",
    "GateEvent",
    "GateRequest",
    "GateSpecs",
    "Head",
    "HostLengths",
    "InFlight",
    "KVGroup",
    "KVLayout",
    "KVMover",
    "KVTensorSpec",
    "KVTensors",
    "KVTier",
    "KVTierContext",
    "KVTierSpecs",
    "Kind",
    "Launched",
    "LayerNorm",
    "Lease",
    "LifecycleSpecs",
    "Linear",
    "LoadReport",
    "LoaderContext",
    "LoaderSpecs",
    "LogitsProcessor",
    "LogitsProcessorContext",
    "LogitsProcessorSpecs",
    "LogitsRow",
    "LogprobSpec",
    "Logprobs",
    "Metric",
    "MetricsContext",
    "MetricsSink",
    "MetricsSpecs",
    "Model",
    "ModelEntry",
    "ModelShape",
    "ModelSource",
    "ModelSourceError",
    "ModelSpecs",
    "ModelWorker",
    "ModelWorkerBatch",
    "ModelsContext",
    "Moved",
    "Need",
    "Norm",
    "ObserverContext",
    "ObserverSpecs",
    "Ops",
    "OpsContext",
    "OpsSpecs",
    "PassedOver",
    "PendingResult",
    "PluginContext",
    "PolicyContext",
    "Pooling",
    "PostAttention",
    "PreAttention",
    "PrefixCache",
    "PrefixCacheSpecs",
    "PrefixForest",
    "Problem",
    "ProcessInfo",
    "ProcessorSource",
    "RequestFault",
    "RequestFinished",
    "RequestLife",
    "RequestReceived",
    "RequestTable",
    "Retraction",
    "Rotary",
    "RowOpen",
    "RowWrites",
    "Sample",
    "SamplingRows",
    "SchedulePolicy",
    "SchedulePolicySpecs",
    "SchedulerPhases",
    "SchedulerView",
    "Scrape",
    "Shard",
    "StackChanged",
    "StepBudget",
    "StepDecision",
    "StepOutcome",
    "StepRecord",
    "TierRule",
    "TierUse",
    "TokenizerFiles",
    "UnsupportedModel",
    "VirtualClock",
    "WaitReason",
    "Wake",
    "Want",
    "Weight",
    "WindowWrites",
    "WorkerContext",
    "WorkerLimits",
    "WorkerOp",
    "WorkerReply",
    "WorkerResult",
    "WorkerSpecs",
    "WorkerStack",
    "hookimpl",
    "hookspec",
    "tenant_code",
    "window_floor",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            found = vars(importlib.import_module(f"{__name__}.{module}"))
            if name in found:
                globals()[name] = found[name]
                return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
