"""Turns pydantic's findings into one message that a user can act on: which setting, from where, and what is valid."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from jackfield.config.errors import ConfigurationError, did_you_mean, refuse
from jackfield.config.fields import FieldFacts, Shape, facts_of
from jackfield.config.layer import DEFAULT
from jackfield.config.server_args import SECRETS, ServerArgs

_TABLE = "a table"

_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "dict_type": _TABLE,
    "model_type": _TABLE,
    "model_attributes_type": _TABLE,
    "dataclass_type": _TABLE,
    "path_type": "a path",
}
"""pydantic's type of a finding -> what is wanted, in words that do not name Python's types."""

_WHOLE, _NUMBER, _TRUTH = (
    re.compile(form) for form in (r"[+-]?\d+", r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", "true|false")
)


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
    if item["type"] == "model_type" and facts.shape is Shape.USES:
        return f"{value!r} is no use of a plugin: write its name, or {{ plugin = ..., as = ..., options = ... }}"
    said = plain_words(item)
    expected = said.removeprefix("must be ")
    return (
        f"{value!r} is not valid: it must be {expected}{quotes_hint(item)}"
        if expected != said
        else f"{value!r} is not valid: {said}"
    )


def plain_words(item: Any, *, table: str = _TABLE) -> str:
    """What one of pydantic's findings says, in an operator's words: "must be a whole number". table: what a dict is called."""
    if item["type"] in _EXPECTED:
        expected = _EXPECTED[item["type"]]
        return f"must be {table if expected == _TABLE else expected}"
    said: str = item["msg"][:1].lower() + item["msg"][1:]
    return "must be " + said.removeprefix("input should be ") if said.startswith("input should be ") else said


def quotes_hint(item: Any) -> str:
    """ " (without quotes)" where only the quotes are wrong, and the other way round where text is wanted; else ""."""
    value, wanted = item["input"], _EXPECTED.get(item["type"])
    if wanted == "text" and isinstance(value, int | float):
        return " (in quotes, if it is meant as text)"
    forms = {"a whole number": _WHOLE, "a number": _NUMBER, "true or false": _TRUTH}
    return " (without quotes)" if wanted in forms and isinstance(value, str) and forms[wanted].fullmatch(value) else ""
