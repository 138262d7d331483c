"""Turns pydantic's findings into one message that a user can act on: which setting, from where, and what is valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from jackfield.config.errors import ConfigurationError, did_you_mean, refuse
from jackfield.config.fields import FieldFacts, facts_of
from jackfield.config.layer import DEFAULT
from jackfield.config.server_args import SECRETS, ServerArgs


def configuration_error(error: ValidationError, provenance: Mapping[str, str]) -> ConfigurationError:
    """One ConfigurationError for all that was found."""
    return refuse([_sentence(item, provenance) for item in error.errors(include_url=False)])


def where(name: str, provenance: Mapping[str, str]) -> str:
    """How a user knows a setting: by the source that set it, else by its flag."""
    source = provenance.get(name, DEFAULT)
    facts = facts_of(ServerArgs)[name]
    if source == DEFAULT:
        return facts.flag
    if source.startswith("stack file"):
        return f"{source}: {name}"
    return source


def _sentence(item: Any, provenance: Mapping[str, str]) -> str:
    facts = facts_of(ServerArgs)
    context = item.get("ctx", {})
    if item["type"] == "contradiction":
        names: tuple[str, ...] = context["names"]
        return f"{', '.join(_origin(name, provenance) for name in names)}: {context['text']}"
    path = item["loc"]
    name = str(path[0])
    if name not in facts:
        return f"there is no setting {name!r}{did_you_mean(name, facts)}"
    below = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path[1:])
    return f"{where(name, provenance)}{below}: {_finding(item, facts[name], top=len(path) == 1)}"


def _origin(name: str, provenance: Mapping[str, str]) -> str:
    source = provenance.get(name, DEFAULT)
    return where(name, provenance) + (" (default)" if source == DEFAULT else "")


def _finding(item: Any, facts: FieldFacts, *, top: bool) -> str:
    value = "***" if facts.name in SECRETS else item["input"]
    if item["type"] == "literal_error" and facts.choices:
        meant = did_you_mean(value, facts.choices) if isinstance(value, str) else ""
        # The short list is always worth its place: the nearest word may not be the one that was meant.
        valid = f" ({', '.join(facts.choices)})" if "did you mean" in meant or not meant else ""
        return f"{value!r} is not one of its values{valid}{meant}"
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    if item["type"] == "extra_forbidden":
        return f"there is no such entry{did_you_mean(str(item['loc'][-1]), ('plugin', 'as', 'options'))}"
    if item["type"] == "missing":
        return "is missing"
    said = item["msg"][:1].lower() + item["msg"][1:]
    expected = said.removeprefix("input should be ")
    return f"{value!r} is not valid: it must be {expected}" if expected != said else f"{value!r} is not valid: {said}"
