"""The subset of JSON Schema that OpenAI's `strict: true` asks for, as a check of its own.

Backends honour more. A client that asks for `strict` is promised that every field is there and that no other is; a schema that
does not say so is refused as OpenAI's API refuses it, instead of being tightened without a word. Linear in the schema.
"""

from __future__ import annotations

import json
from typing import Any

from jackfield.grammars.schema_keywords import KEYWORDS
from jackfield.grammars.schema_walk import Place, error, places, read_json

MOST_PROPERTIES = 5_000
MOST_DEPTH = 10
"""Objects and arrays within each other, as written; references count where they lead to, once."""
MOST_ENUM_VALUES = 1_000
MOST_NAME_CHARACTERS = 120_000
"""Names of properties and definitions, values of `enum` and `const`, together."""

NOT_STRICT = frozenset(
    {
        "allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties",
        "propertyNames", "minProperties", "maxProperties", "unevaluatedProperties", "unevaluatedItems", "contains",
        "minContains", "maxContains", "uniqueItems", "prefixItems",
    }
)  # fmt: skip


def check_openai_strict(schema: str | Any) -> None:
    """schema: a JSON text, or what was read from one. Raises GrammarError with the keyword and its JSON pointer."""
    value = read_json(schema, "the JSON schema") if isinstance(schema, str) else schema
    found = places(value)
    root = found[0] if found else None
    if root is None or root.types != frozenset({"object"}):
        raise error("/type", "with strict, the root is an object and says so")
    for keyword in ("anyOf", "$ref"):
        if keyword in root.schema:
            raise root.error(keyword, "with strict, it does not stand at the root")
    properties = values = characters = 0
    for place in found:
        _check_place(place)
        named = [
            *place.schema.get("properties", ()),
            *place.schema.get("$defs", ()),
            *place.schema.get("definitions", ()),
        ]
        listed = [*place.schema.get("enum", ()), *([place.schema["const"]] if "const" in place.schema else ())]
        properties += len(place.schema.get("properties", ()))
        values += len(place.schema.get("enum", ()))
        characters += sum(map(len, named)) + sum(
            len(item if isinstance(item, str) else json.dumps(item)) for item in listed
        )
    for count, most, what in (
        (properties, MOST_PROPERTIES, "properties"),
        (values, MOST_ENUM_VALUES, "values of enum"),
        (characters, MOST_NAME_CHARACTERS, "characters in names and values"),
    ):
        if count > most:
            raise error("", f"with strict, a schema has up to {most:,} {what}; this one has {count:,}")


def _check_place(place: Place) -> None:
    schema = place.schema
    for keyword in schema:
        if keyword in NOT_STRICT:
            raise place.error(keyword, f"with strict, {keyword!r} is not permitted")
    if _depth(place.pointer) > MOST_DEPTH:
        raise error(place.pointer, f"with strict, objects and arrays are nested up to {MOST_DEPTH} deep")
    if not (KEYWORDS.keys() & schema.keys() - {"$defs", "definitions"}):
        raise error(place.pointer, "with strict, every schema says what it allows; this one has no 'type'")
    if "object" not in (place.types or ()) and "properties" not in schema:
        return
    if schema.get("additionalProperties") is not False:
        raise place.error("additionalProperties", 'with strict, every object says "additionalProperties": false')
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if missing := [name for name in properties if name not in set(required)]:
        raise place.error(
            "required",
            f"with strict, every property is required; {missing[0]!r} is not (a union with null makes it optional)",
        )
    if unknown := [name for name in required if name not in properties]:
        raise place.error("required", f"{unknown[0]!r} is no property")


def _depth(pointer: str) -> int:
    """How many objects and arrays lie round a place, by its pointer. A property may be called `items`: every second part of a
    path through `properties` is a name."""
    parts, depth, at = pointer.split("/")[1:], 0, 0
    while at < len(parts):
        if parts[at] in ("properties", "items"):
            depth += 1
        at += 1 if parts[at] in ("items", "additionalProperties") else 2
    return depth
