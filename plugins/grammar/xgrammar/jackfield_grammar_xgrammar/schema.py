"""Which JSON schemas xgrammar honours in full, and how they are handed to it.

xgrammar 0.2.9 ignores much without a word: keywords that it does not know, keywords about a type that `type` does not name,
what stands beside `$ref`, `anyOf` or `enum`. `RULES` refuses all of it. Patterns inside JSON, and so formats, it compiles
wrongly: `^a(?:b[0-9])?c$` lets `a1c` pass, and a quote in a pattern ends the string. They are refused too; as a grammar of their
own patterns are right.
"""

from __future__ import annotations

import json
from typing import Any

from jackfield.grammars.schema_keywords import type_of
from jackfield.grammars.schema_rules import SchemaRules, control_characters, rewrite
from jackfield.grammars.schema_walk import Place
from jackfield.hookspecs import GrammarError

MOST_WHITESPACE = 2
"""Characters between two marks of JSON, so that a model cannot pad for ever."""
MOST_DECIMALS = 6
"""Of a bound: what xgrammar's expressions for ranges keep."""
MOST_BOUND = 2**31
MOST_PROPERTIES = 200
"""Of one object: xgrammar's time to compile grows with their square."""
_ALONE: frozenset[str] = frozenset()
_SHARED = ("$ref", "anyOf", "oneOf", "allOf")


def _values(place: Place) -> None:
    for keyword in ("const", "enum"):
        if keyword not in place.schema:
            continue
        values = place.schema[keyword] if keyword == "enum" else [place.schema[keyword]]
        for value in values:
            kinds = {type_of(value)} | ({"number"} if type_of(value) == "integer" else set())
            if place.types is not None and not kinds & place.types:
                raise place.error(keyword, f"xgrammar would allow {value!r}, which is not of the type beside it")
        if control_characters(values):
            raise place.error(
                keyword, "holds a control character that JSON writes by number only, which is switched off"
            )


def _numbers(place: Place) -> None:
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if keyword not in place.schema:
            continue
        bound = place.schema[keyword]
        if abs(bound) > MOST_BOUND or round(bound, MOST_DECIMALS) != bound:
            raise place.error(keyword, f"xgrammar honours bounds up to 2^31 with {MOST_DECIMALS} decimals at most")
        if place.types and "integer" in place.types and not float(bound).is_integer():
            raise place.error(keyword, 'xgrammar takes whole numbers only beside "type": "integer"')
    step = place.schema.get("multipleOf", 1)
    if "multipleOf" in place.schema and (place.types != frozenset({"integer"}) or not float(step).is_integer()):
        raise place.error("multipleOf", 'xgrammar honours whole numbers only, and only beside "type": "integer"')


def _objects(place: Place) -> None:
    schema = place.schema
    properties = schema.get("properties", {})
    if len(properties) > MOST_PROPERTIES:
        raise place.error("properties", f"{len(properties)} of them; xgrammar takes up to {MOST_PROPERTIES}")
    for name in schema.get("required", ()):
        if name not in properties:
            raise place.error("required", f"xgrammar honours it for names in 'properties' only, which {name!r} is not")
    more = schema.get("additionalProperties")
    if properties and more not in (None, False):
        # A further property may be spelled with numbers of characters, "\u0061" for a, past the schema of a.
        raise place.error(
            "additionalProperties", "xgrammar cannot keep further properties apart from those that are named"
        )
    if not properties and more is not False and schema.get("minProperties", 0) > 1:
        raise place.error("minProperties", "is honoured up to 1 here, as further properties may have the same name")
    if control_characters(list(properties)):
        raise place.error("properties", "a name holds a control character that JSON writes by number only")


def _options(place: Place) -> None:
    if len(place.schema.get("allOf", ())) > 1:
        raise place.error("allOf", "xgrammar honours one schema in it only")
    taken: set[str] = set()
    for number, option in enumerate(place.schema.get("oneOf", ())):
        kind = option.get("type") if isinstance(option, dict) else None
        kinds = {kind} if isinstance(kind, str) else set(kind or ())
        kinds |= {"integer"} if "number" in kinds else set()
        if not kinds or kinds & taken:
            raise place.error(
                "oneOf", f"xgrammar honours it only where each option has a type of its own; option {number} has not"
            )
        taken |= kinds


def _no_false(place: Place) -> None:
    for keyword in ("properties", "anyOf", "oneOf", "allOf", "prefixItems"):
        inside = place.schema.get(keyword, ())
        if any(sub is False for sub in (inside.values() if isinstance(inside, dict) else inside)):
            raise place.error(keyword, "xgrammar does not take the schema false in it")


RULES = SchemaRules(
    backend="xgrammar",
    keywords=frozenset(
        {
            "type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf",
            "minLength", "maxLength",
            "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
            "items", "prefixItems", "minItems", "maxItems",
            "properties", "required", "additionalProperties", "minProperties", "maxProperties",
        }
    ),
    typed=True,
    company={
        **dict.fromkeys(_SHARED, _ALONE),
        "enum": frozenset({"type"}),
        "const": frozenset({"type"}),
        "multipleOf": frozenset({"type"}),
    },
    further=(_values, _numbers, _objects, _options, _no_false),
)  # fmt: skip


def _change(schema: dict[str, Any]) -> dict[str, Any]:
    """One schema in xgrammar's words: objects with properties are closed."""
    if "properties" in schema:
        schema["additionalProperties"] = False
    return schema


def json_grammar(schema: Any) -> Any:
    """A checked schema as xgrammar takes it."""
    if schema is False:
        raise GrammarError("JSON schema, at its root: no finite value satisfies it", keyword="/")
    return rewrite(schema, _change)


def schema_text(schema: Any) -> str:
    return json.dumps(json_grammar(schema), ensure_ascii=False)
