"""Makes this process's core one whose stable contracts have each grown by a minor version, in every way that a minor allows.

A later core cannot be installed here, so this one is changed in place: what the core hands to plugins has a further argument or
field, what they implement a further method. Plugins must be imported after it.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jackfield import hookspecs
from jackfield.hookspecs import KINDS
from jackfield.stack import loading, observers
from jackfield.stack.hooks import Hook, the_hook

STABLE = ("schedule_policy", "attention", "metrics", "observer", "model")
BASES = ("SchedulePolicy", "AttentionBackend", "AttentionPlan", "MetricsSink", "Model")
RECORDS = (
    "Amounts",
    "Chosen",
    "SchedulerView",
    "StepBudget",
    "StepRecord",
    "AttentionBatch",
    "AttentionLayer",
    "AttentionLimits",
    "HostLengths",
    "KVGroup",
    "KVTensors",
    "Metric",
    "Sample",
    "Scrape",
    "Exposition",
    "BatchScheduled",
    "ProcessInfo",
    "RequestFinished",
    "RequestReceived",
    "StepDecision",
    "Advance",
    "PassedOver",
    "ModelEntry",
    "ModelShape",
    "LoadReport",
    "Weight",
    "Shard",
    "Need",
    "Problem",
)


@contextmanager
def next_minor() -> Iterator[None]:
    """Until the end, `later` is a field of each record and context, an argument of each hook and a method of each base class."""
    for name in hookspecs.__all__:  # what is imported on demand is there before it is replaced
        getattr(hookspecs, name)
    with pytest.MonkeyPatch.context() as patch:
        for kind in STABLE:
            before = KINDS[kind].contract
            object.__setattr__(KINDS[kind], "contract", (before[0], before[1] + 1))
        for name in BASES:
            patch.setattr(getattr(hookspecs, name), "later", lambda self: "by default", raising=False)
        for name in RECORDS:
            _replace_everywhere(patch, getattr(hookspecs, name), _grown(getattr(hookspecs, name)))
        patch.setattr(loading, "the_hook", _grown_hook)
        patch.setattr(loading, "named_arguments", _with_another(loading.named_arguments))
        patch.setattr(observers.ObserverHub, "_call", _heard_with_another(observers.ObserverHub._call))
        try:
            yield
        finally:
            for kind in STABLE:
                major, minor = KINDS[kind].contract
                object.__setattr__(KINDS[kind], "contract", (major, minor - 1))


def _grown(record: type) -> type:
    """The record with one more field, under its own name."""
    more = [("later", str, dataclasses.field(default="by default"))]
    made = dataclasses.make_dataclass(record.__name__, more, bases=(record,), frozen=True, kw_only=True)
    made.__module__ = record.__module__
    return made


def _replace_everywhere(patch: pytest.MonkeyPatch, old: Any, new: Any) -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0].startswith("jackfield"):
            for attribute, value in list(vars(module).items()):
                if value is old:
                    patch.setattr(module, attribute, new)


def _grown_hook(kind: str) -> Hook:
    hook = the_hook(kind)
    if kind not in STABLE or hook.context is None:
        return hook
    parameters = (*hook.parameters, "later")
    return dataclasses.replace(hook, parameters=parameters, context=typing.cast(Any, _grown(hook.context)))


def _with_another(named_arguments: Any) -> Any:
    return lambda function, given: named_arguments(function, {**given, "later": "an argument"})


def _heard_with_another(call: Any) -> Any:
    assert list(inspect.signature(call).parameters)[-1] == "kwargs", "the hub hands on a hook's arguments as `kwargs`"
    return lambda self, listener, kwargs: call(self, listener, {**kwargs, "later": "an argument"})
