"""Conformance suites: what the contract asks of a plugin, as pytest classes; one module a kind, one class a kind.

    from jackfield.testing.conformance import SchedulePolicyConformance

    class TestMine(SchedulePolicyConformance):
        plugin = "least-work"
        options = {"patience": 10.0}

`jackfield conformance schedule_policy.least-work` runs the same class. Each class is imported when it is asked for, so that
the suite of a kind without torch imports none. Needs the extra `jackfield[testing]`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jackfield.hookspecs.kinds import KINDS

if TYPE_CHECKING:
    from jackfield.testing.conformance.attention import AttentionConformance
    from jackfield.testing.conformance.cache import CacheConformance
    from jackfield.testing.conformance.event_loop import EventLoopConformance
    from jackfield.testing.conformance.gate import GateConformance
    from jackfield.testing.conformance.grammar import GrammarConformance
    from jackfield.testing.conformance.kv_tier import KvTierConformance
    from jackfield.testing.conformance.loader import LoaderConformance
    from jackfield.testing.conformance.logits_processor import LogitsProcessorConformance
    from jackfield.testing.conformance.metrics import MetricsConformance
    from jackfield.testing.conformance.model import ModelConformance
    from jackfield.testing.conformance.observer import ObserverConformance
    from jackfield.testing.conformance.ops import OpsConformance
    from jackfield.testing.conformance.parser import ParserConformance
    from jackfield.testing.conformance.routes import RoutesConformance
    from jackfield.testing.conformance.schedule_policy import SchedulePolicyConformance
    from jackfield.testing.conformance.suite import Conformance
    from jackfield.testing.conformance.worker import WorkerConformance

__all__ = [
    "AttentionConformance",
    "CacheConformance",
    "Conformance",
    "EventLoopConformance",
    "GateConformance",
    "GrammarConformance",
    "KvTierConformance",
    "LoaderConformance",
    "LogitsProcessorConformance",
    "MetricsConformance",
    "ModelConformance",
    "ObserverConformance",
    "OpsConformance",
    "ParserConformance",
    "RoutesConformance",
    "SchedulePolicyConformance",
    "WorkerConformance",
    "suite_name",
]


def suite_name(kind: str) -> str:
    """The class of a kind's suite: "kv_tier" -> "KvTierConformance"."""
    return "".join(word.capitalize() for word in kind.split("_")) + "Conformance"


_SUITES = {suite_name(kind): kind for kind in KINDS}


def __getattr__(name: str) -> Any:
    module = "suite" if name == "Conformance" else _SUITES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
