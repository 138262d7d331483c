"""Makes this process's core one whose stable contracts have each grown by a minor version, in every way that a minor allows.

A later core cannot be installed here, so this one is changed in place: what the core hands to plugins has a further argument or
field, what they implement a further method. Plugins must be imported after it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from jackfield import hookspecs
from jackfield.hookspecs import KINDS
from jackfield.stack.loading import load
from jackfield.stack.loading.hooks import Hook, hook_table, the_hook
from jackfield.stack.runtime import observers
from tests.contract.facts import facts_of

STABLE = ("schedule_policy", "attention", "metrics", "observer", "model")
BASES = ("SchedulePolicy", "AttentionBackend", "AttentionPlan", "MetricsSink", "Model")


def records() -> list[str]:
    """Every record of the stable contracts but contexts, which grow with their hook."""
    contexts = {hook.context.__name__ for hook in hook_table().values() if hook.context is not None}
    facts = {subject: fact for kind in STABLE for subject, fact in facts_of(kind).items()}
    return sorted({name for name, fact in facts.items() if fact == "record"} - contexts)


@contextmanager
def next_minor() -> Iterator[None]:
    """Until the end, `later` is a field of each record and context, an argument of each hook and a method of each base class."""
    for name in hookspecs.__all__:  # what is imported on demand is there before it is replaced
        getattr(hookspecs, name)
    with pytest.MonkeyPatch.context() as patch, _raised(STABLE):
        for name in BASES:
            patch.setattr(getattr(hookspecs, name), "later", lambda self: "by default", raising=False)
        for name in records():
            _replace_everywhere(patch, getattr(hookspecs, name), _grown(getattr(hookspecs, name)))
        patch.setattr(load, "the_hook", _grown_hook)
        patch.setattr(load, "named_arguments", _with_another(load.named_arguments))
        patch.setattr(
            observers, "hook_table", lambda: {name: _grown_table(hook) for name, hook in hook_table().items()}
        )
        patch.setattr(observers.ObserverHub, "_tell", _heard_with_another(observers.ObserverHub._tell))
        yield


@contextmanager
def _raised(kinds: Sequence[str]) -> Iterator[None]:
    before = {kind: KINDS[kind].contract for kind in kinds}
    try:
        for kind, (major, minor) in before.items():
            object.__setattr__(KINDS[kind], "contract", (major, minor + 1))
        yield
    finally:
        for kind, version in before.items():
            object.__setattr__(KINDS[kind], "contract", version)


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
    return _grown_table(the_hook(kind))


def _grown_table(hook: Hook) -> Hook:
    if hook.kind not in STABLE:
        return hook
    context = None if hook.context is None else _grown(hook.context)
    return dataclasses.replace(hook, parameters=(*hook.parameters, "later"), context=context)


def _with_another(named_arguments: Any) -> Any:
    return lambda function, given: named_arguments(function, {**given, "later": "an argument"})


def _heard_with_another(tell: Any) -> Any:
    return lambda self, listeners, kwargs: tell(self, listeners, {**kwargs, "later": "an argument"})
