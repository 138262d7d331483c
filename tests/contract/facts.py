"""The contract of a kind as facts, one line each, read from `jackfield.hookspecs` by inspection.

A fact is a subject and what is true of it in Python's own words: `AttentionBatch.max_q` -> `field int`. A `method` is one that
plugins implement, a `function` one that they call. What several kinds share is a fact of each that uses it, so that a change to a
shared record is a change to every one of their contracts.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from jackfield import hookspecs
from jackfield.hookspecs import KINDS, SPECS
from jackfield.stack.discovery import manifest
from jackfield.stack.loading.hooks import hook_table

Facts = dict[str, str]

_WORD = re.compile(r"[A-Za-z_]\w*")
_ONLY_PASSED_ON: Mapping[str, frozenset[str]] = {"model": frozenset({"PreAttention", "PostAttention"})}
"""Kind -> what its plugins get from the core and give back without looking inside: no part of their contract."""

_NAMED_BY_NOBODY: Mapping[str, tuple[str, ...]] = {
    "attention": ("NHD_PAGED", "HND_PAGED", "BatchFault"),
    "gate": ("RequestFault",),
    "grammar": ("GRAMMAR_FORMS", "GrammarError"),
    "model": ("EMBEDDING", "CLASSIFICATION"),
    "observer": ("WAIT_NUMBERS",),
    "routes": ("CallBegan", "CallDelta", "ChoiceEnded", "ContentDelta", "ReasoningDelta", "TokensScored"),
    "schedule_policy": ("HOLD", "tenant_code"),
    "worker": ("BatchFault", "EMBEDDING", "CLASSIFICATION"),
}
"""Kind -> what its plugins import though no annotation names it: constants, exceptions, functions of shared modules."""

NOT_OF_PLUGINS = frozenset({"KINDS", "SPECS", "Kind", "FaultScope", "LIFECYCLE_HOOKS", "CORE_LAYOUTS", "NO_SLOTS"})
"""Offered beside the contract: the tables that the core itself reads, and what says the same as a fact elsewhere."""


def facts_of(kind: str) -> Facts:
    """All that a plugin of this kind may rely on."""
    found: Facts = {}
    others = {hook.returns.__name__ for hook in hook_table().values() if hook.returns and hook.kind != kind}
    closed = others | _ONLY_PASSED_ON.get(kind, frozenset())
    waiting = list(_own_names(kind))
    for specs in SPECS:
        for name, function in vars(specs).items():
            if name in hook_table() and hook_table()[name].kind == kind:
                found[name] = f"hook {_signature(function)}"
                waiting.extend(_mentioned(function))
    found |= _manifest_keys(kind) | _place(kind)
    done = set()
    while waiting:
        name = waiting.pop()
        if name in done or name in closed:
            continue
        done.add(name)
        value = getattr(hookspecs, name)
        found.update(_facts(name, value))
        waiting.extend(_mentioned(value))
    return dict(sorted(found.items()))


def written(facts: Facts) -> str:
    return "".join(f"{subject}: {fact}\n" for subject, fact in facts.items())


def read(text: str) -> Facts:
    return dict(line.split(": ", 1) for line in text.splitlines())


def _own_names(kind: str) -> Iterator[str]:
    """What the kind's own module offers to be imported."""
    modules = {specs.__module__ for specs in SPECS if KINDS[kind].hook in vars(specs)}
    for name in hookspecs.__all__:
        value = getattr(hookspecs, name)
        if getattr(value, "__module__", None) in modules and not name.endswith("Specs"):
            yield name
    yield from _NAMED_BY_NOBODY.get(kind, ())
    yield from ("Need", "DeviceDescription", "Problem")  # of a probe, which a plugin of any kind may have


def _manifest_keys(kind: str) -> Facts:
    required = {*manifest._REQUIRED, *manifest._MUST_SAY.get(kind, ())}
    facts = {"manifest": "keys"}
    for key, check in manifest._KEYS.items():
        if kind in manifest._ONLY_FOR.get(key, KINDS):
            facts[f"manifest.{key}"] = f"{'required ' if key in required else ''}key {check(None)[1]}"
    if kind == "attention":
        for what, words in (("role", manifest._LAYOUT_ROLES), ("shape", manifest._LAYOUT_WORDS)):
            facts |= {f"manifest.layout.{what}.{word}": "word" for word in words}
    return facts


def _place(kind: str) -> Facts:
    """Where a plugin is found and lives, if it says nothing of it."""
    row = KINDS[kind]
    return {
        "kind.entry_point_group": row.entry_point_group,
        "kind.hook": row.hook,
        "kind.processes": ", ".join(row.processes),
        "kind.several": "no" if row.exclusive else "yes",
    }


def _facts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if not inspect.isclass(value):
        if isinstance(value, Mapping):
            yield name, "table"
            for key, words in value.items():
                for word in words:
                    yield f"{name}.{key.name}.{word}", "word"
            return
        yield name, f"function {_signature(value)}" if inspect.isfunction(value) else f"constant {_text(value)}"
        return
    if issubclass(value, enum.Enum):
        bases = [base.__name__ for base in value.__bases__ if base is not enum.Enum]
        yield name, " ".join(["enum", *bases])
        for member in value:
            yield f"{name}.{member.name}", f"member {member.value!r}"
        return
    bases = [base.__name__ for base in value.__bases__ if base.__name__ not in ("object", "Protocol", "Generic")]
    yield name, f"{_form(value)} {', '.join(bases)}".rstrip()
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield f"{name}.{field.name}", f"field {field.type}{_default(field)}"
    else:
        yield from _annotated(name, value)
    if "__init__" in vars(value) and _form(value) in ("base", "exception"):
        yield f"{name}.__init__", _method(vars(value)["__init__"], form="method")
    for member, content in vars(value).items():
        if member.startswith("_") and member not in ("__call__", "__len__"):
            continue
        if isinstance(content, property):
            assert content.fget is not None
            yield f"{name}.{member}", f"property {inspect.signature(content.fget).return_annotation}"
        elif inspect.isfunction(content):
            yield f"{name}.{member}", _method(content, form="method" if _form(value) == "base" else "function")
        elif isinstance(content, classmethod | staticmethod):
            yield f"{name}.{member}", _method(getattr(value, member), form="function")


def _annotated(name: str, value: type) -> Iterator[tuple[str, str]]:
    for attribute, kind in inspect.get_annotations(value).items():
        if not attribute.startswith("_"):
            yield f"{name}.{attribute}", f"attribute {kind}"


def _form(value: type) -> str:
    if issubclass(value, BaseException):
        return "exception"
    if dataclasses.is_dataclass(value):
        frozen = "" if value.__dataclass_params__.frozen else "open "  # type: ignore[attr-defined]
        by_place = [field.name for field in dataclasses.fields(value) if not field.kw_only]
        return f"{frozen}record" + (f" by place ({', '.join(by_place)})" if by_place else "")
    return "protocol" if getattr(value, "_is_protocol", False) else "base"


def _method(function: Any, *, form: str) -> str:
    required = "required " if getattr(function, "__isabstractmethod__", False) else ""
    return f"{required}{form} {_signature(function)}"


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [parameter for name, parameter in signature.parameters.items() if name != "self"]
    # Annotations are the source's own text, because every module of the contract postpones their evaluation.
    return str(signature.replace(parameters=parameters)).replace("'", "")


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f" = {_text(field.default)}"
    if field.default_factory is not dataclasses.MISSING:
        return f" = {field.default_factory.__name__}()"
    return ""


def _text(value: Any) -> str:
    """As Python writes it, but of a record only what is no default: so that it may grow."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))}{',' if len(value) == 1 else ''})"
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return repr(value)
    told = [
        f"{field.name}={_text(given)}"
        for field in dataclasses.fields(value)
        if (given := getattr(value, field.name)) != field.default
    ]
    return f"{type(value).__name__}({', '.join(sorted(told))})"


def _mentioned(value: Any) -> Iterator[str]:
    """Public names in the annotations of a class or function."""
    parts = [value, *(content for content in vars(value).values())] if inspect.isclass(value) else [value]
    texts = []
    for part in parts:
        function = part.fget if isinstance(part, property) else part
        if inspect.isfunction(function):
            texts.append(str(inspect.signature(function)))
    if inspect.isclass(value):
        texts.extend(str(kind) for base in value.__mro__ for kind in inspect.get_annotations(base).values())
        texts.extend(base.__name__ for base in value.__bases__)
    for word in _WORD.findall(" ".join(texts)):
        if word in hookspecs.__all__:
            yield word
