"""Texts that a structural tag allows: a few of each, for parsers to read back. Knows the parts of which tool calls are made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

FREE = "Free text. "
_STRING = 'a "b" }] </c> \\ é\n'


def texts_of(layout: Mapping[str, Any]) -> Iterator[str]:
    """layout: the `format` of a structural tag. Raises ValueError for a part that is not known here."""
    match layout["type"]:
        case "const_string":
            yield layout["value"]
        case "any_text":
            yield FREE
        case "json_schema":
            yield from dict.fromkeys(
                json.dumps(value_of(layout["json_schema"]), ensure_ascii=False, separators=separators)
                for separators in (None, (",", ":"))
            )
        case "sequence":
            yield from map("".join, product(*(list(texts_of(part)) for part in layout["elements"])))
        case "or":
            for part in layout["elements"]:
                yield from texts_of(part)
        case "tag":
            for content in texts_of(layout["content"]):
                yield layout["begin"] + content + layout["end"]
        case "tags_with_separator":
            yield from _tags(layout, layout["separator"])
        case "triggered_tags":
            for text in _tags(layout, ""):
                yield text
                yield FREE + text
        case other:
            raise ValueError(f"texts of {other!r} cannot be made here")


def _tags(layout: Mapping[str, Any], separator: str) -> Iterator[str]:
    each = [text for tag in layout["tags"] for text in texts_of(tag)]
    yield from each
    if not layout.get("stop_after_first", False):
        yield separator.join(each)


def value_of(schema: Mapping[str, Any]) -> Any:
    """A value of a plain schema: types, properties, items, enum."""
    if "enum" in schema:
        return schema["enum"][0]
    named = schema.get("type")
    match named[0] if isinstance(named, list) else named:
        case "object":
            return {name: value_of(part) for name, part in schema.get("properties", {}).items()}
        case "array":
            return [value_of(schema.get("items", {"type": "string"}))] * 2
        case "integer":
            return 7
        case "number":
            return -1.5
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _STRING
