"""Parameters whose values are plain text, to JSON, by what the tool's schema says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring
from typing import Any

from jackfield.hookspecs import Tool

_SURROGATES = re.compile("[\ud800-\udfff]")
TYPES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})


def types_of(tool: Tool, parameter: str) -> frozenset[str]:
    """The JSON types that the schema lets the parameter have; what it says nothing of is a string."""
    properties = tool.parameters.get("properties")
    schema = properties.get(parameter) if isinstance(properties, Mapping) else None
    return _types(schema) or frozenset({"string"})


def _types(schema: Any, depth: int = 0) -> frozenset[str]:
    if not isinstance(schema, Mapping) or depth > 8:
        return frozenset()
    if isinstance(schema.get("enum"), list):
        return frozenset(_type_of(value) for value in schema["enum"])
    if "const" in schema:
        return frozenset({_type_of(schema["const"])})
    named = schema.get("type")
    found = set(named if isinstance(named, list) else [named]) & TYPES if _hashable(named) else set()
    for word in ("anyOf", "oneOf"):
        if isinstance(arms := schema.get(word), list):
            for arm in arms:
                found |= _types(arm, depth + 1)
    if not found and ("properties" in schema or "$ref" in schema):
        found.add("object")
    return frozenset(found)


def _hashable(named: Any) -> bool:
    return isinstance(named, str) or (isinstance(named, list) and all(isinstance(one, str) for one in named))


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def escaped(text: str) -> str:
    """As it stands within a JSON string."""
    return without_surrogates(encode_basestring(text)[1:-1])


def without_surrogates(text: str) -> str:
    """JSON text with halves of surrogate pairs as escapes: no answer can carry them as they are."""
    if text.isascii():
        return text
    return _SURROGATES.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def json_value(text: str) -> Any:
    """The JSON value of the text. Raises ValueError if it is none, NaN and Infinity included, or is nested too deeply."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


class PlainValue:
    """One value as it comes. give: takes pieces of JSON text.

    A line break behind the opening tag and one before the closing tag belong to the tags. A value that can only be a string is
    given as it comes; of any other it can be told at its end alone what it is.
    """

    def __init__(self, types: frozenset[str], give: Callable[[str], None]) -> None:
        self._types = types
        self._give = give
        self._streams = types == {"string"}
        self._parts: list[str] = []
        self._begun = False
        self._break = ""
        if self._streams:
            give('"')

    def feed(self, text: str) -> None:
        if not text:
            return
        if not self._begun:
            self._begun = True
            text = text.removeprefix("\n")
            if not text:
                return
        text = self._break + text
        kept = text.removesuffix("\n")
        self._break = text[len(kept) :]
        if not self._streams:
            self._parts.append(kept)
        elif kept:
            self._give(escaped(kept))

    def end(self) -> None:
        """The closing tag is there."""
        self._give('"' if self._streams else self._as_json("".join(self._parts)))

    def _as_json(self, text: str) -> str:
        """The value if the text is one of the types, else a string, as written."""
        word = text.strip()
        if "null" in self._types and word.lower() in ("null", "none"):
            return "null"
        if "boolean" in self._types and word.lower() in ("true", "false"):
            return word.lower()
        if self._types - {"string", "null", "boolean"}:
            try:
                value = json_value(word)
            except ValueError:
                value = None
            wanted = self._types | ({"number"} if "integer" in self._types else set())
            if value is not None and _type_of(value) in wanted:
                return word
        return f'"{escaped(text)}"'
