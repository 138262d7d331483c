"""Every class of hook specs, in the order of the kinds."""

from __future__ import annotations

from jackfield.hookspecs.attention import AttentionSpecs
from jackfield.hookspecs.cache import PrefixCacheSpecs
from jackfield.hookspecs.event_loop import EventLoopSpecs
from jackfield.hookspecs.gate import GateSpecs
from jackfield.hookspecs.grammar import GrammarSpecs
from jackfield.hookspecs.kv_tier import KVTierSpecs
from jackfield.hookspecs.loader import LoaderSpecs
from jackfield.hookspecs.logits_processor import LogitsProcessorSpecs
from jackfield.hookspecs.metrics import MetricsSpecs
from jackfield.hookspecs.model import ModelSpecs
from jackfield.hookspecs.observer import LifecycleSpecs, ObserverSpecs
from jackfield.hookspecs.ops import OpsSpecs
from jackfield.hookspecs.parser import ParserSpecs
from jackfield.hookspecs.routes import RoutesSpecs
from jackfield.hookspecs.schedule_policy import SchedulePolicySpecs
from jackfield.hookspecs.worker import WorkerSpecs

SPECS: tuple[type, ...] = (
    AttentionSpecs,
    PrefixCacheSpecs,
    KVTierSpecs,
    SchedulePolicySpecs,
    EventLoopSpecs,
    GateSpecs,
    GrammarSpecs,
    ModelSpecs,
    LoaderSpecs,
    WorkerSpecs,
    OpsSpecs,
    LogitsProcessorSpecs,
    RoutesSpecs,
    ParserSpecs,
    MetricsSpecs,
    ObserverSpecs,
    LifecycleSpecs,
)
"""Every class of hook specs; the generated hook reference and the loader's checks read this."""
