"""Grammars whose answers are known, with texts that keep to them and texts that do not. One for each form that a backend may
claim as a feature of its manifest; a backend's author adds his own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, kw_only=True)
class GrammarExample:
    """valid       each a value with its spellings, of which the grammar has to allow one at least
    violating   texts that it must not allow, whole
    """

    form: str
    source: str
    valid: tuple[tuple[str, ...], ...]
    violating: tuple[str, ...]


def spellings(value: Any) -> tuple[str, ...]:
    """A JSON value compact, and as Python's json writes it."""
    return tuple(
        json.dumps(value, ensure_ascii=False, separators=separators) for separators in ((",", ":"), (", ", ": "))
    )


_SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "é"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}

EXAMPLES: Mapping[str, GrammarExample] = MappingProxyType(
    {
        "regex": GrammarExample(
            form="regex",
            source="[a-c]{2,4}(x|yy)?",
            valid=(("ab",), ("abcx",), ("aaaayy",), ("cc",)),
            violating=("a", "abxx", "abcabc", "x", "aby", "abyyy", "AB"),
        ),
        "json_schema": GrammarExample(
            form="json_schema",
            source=json.dumps(_SCHEMA, ensure_ascii=False),
            valid=(spellings({"a": 1, "b": "x"}), spellings({"a": -20, "b": "é"})),
            violating=tuple(
                text
                for value in (
                    {"a": "1", "b": "x"},
                    {"a": 1},
                    {"a": 1, "b": "z"},
                    {"a": 1.5, "b": "x"},
                    {"a": 1, "b": "x", "c": 1},
                    {"a": None, "b": "x"},
                    [1],
                )
                for text in spellings(value)
            ),
        ),
        "ebnf": GrammarExample(
            form="ebnf",
            source='root ::= "ab" digit+\ndigit ::= [0-9]\n',
            valid=(("ab1",), ("ab203",)),
            violating=("ab", "a1", "ab1x", "1"),
        ),
    }
)
"""Form -> the example."""

MALFORMED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "regex": ("(((", "[a", "a{2"),
        "json_schema": ('{"type":"strng"}', '{"properties":{"a":"bar"}}', '{"$ref":"#/$defs/none"}'),
        "ebnf": ("root ::= (", "other ::= nobody"),
    }
)
"""Form -> sources that are none."""


def vocabulary() -> list[bytes]:
    """A small one: control tokens, every byte, words and their parts, two tokens of one text. Its size fills no whole words of a
    mask."""
    words = [
        *("ab", "bc", "abc", "x", "yy", "aa", "12", "20", "true", "null"),
        '{"',
        '":',
        '", "',
        '"}',
        "é",
        ": ",
        '"b"',
    ]
    return [b"", b"", b"", *(bytes([byte]) for byte in range(256)), *(word.encode() for word in words), b"ab", b""]


STOP_IDS = (2,)
