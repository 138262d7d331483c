"""JSON Schema's keywords (draft 2020-12): to which types each belongs, what its value must look like, where schemas lie in it.

It knows the shape of schemas only, not which backend honours what; that is `schema_rules`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")

ANNOTATIONS = frozenset(
    {
        "$comment", "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
        "contentEncoding", "contentMediaType", "contentSchema",
    }
)  # fmt: skip
"""Keywords that say nothing about which values are valid."""

DIALECTS = ("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema",
            "http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-06/schema")  # fmt: skip
"""What `$schema` may say. Read as 2020-12; what an older draft writes otherwise is refused by name."""

MOST_EXACT = 2**53
"""Numbers beyond it change when a parser reads them as floats, as most do."""


@dataclass(frozen=True, kw_only=True)
class Keyword:
    """types: those whose values it tells about; empty: all. one, several, named: where schemas lie in its value.
    complaint: what is wrong with a value, in words that follow "must be"; None: nothing."""

    types: frozenset[str] = frozenset()
    one: bool = False
    several: bool = False
    named: bool = False
    complaint: Callable[[Any], str | None]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def type_of(value: Any) -> str:
    """JSON Schema's type of a JSON value; whole numbers are integers, 1.0 too."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if is_number(value):
        return "integer" if isinstance(value, int) or value.is_integer() else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def is_exact(value: float) -> bool:
    """Whether every parser and every library read this number alike: no exponent, not too large."""
    if isinstance(value, int):
        return abs(value) <= MOST_EXACT
    return math.isfinite(value) and abs(value) <= MOST_EXACT and "e" not in repr(value)


def _schema(value: Any) -> str | None:
    return None if isinstance(value, dict | bool) else "a schema: an object, true or false"


def _schemas(value: Any) -> str | None:
    good = isinstance(value, list) and value and all(isinstance(item, dict | bool) for item in value)
    return None if good else "a list of schemas that is not empty"


def _named(value: Any) -> str | None:
    if not isinstance(value, dict):
        return "an object of schemas"
    wrong = next((name for name, item in value.items() if not isinstance(item, dict | bool)), None)
    return None if wrong is None else f"an object of schemas, which {wrong!r} is not: an object, true or false"


def _count(value: Any) -> str | None:
    whole = is_number(value) and value >= 0 and float(value).is_integer() if not _huge(value) else False
    return None if whole else "a whole number, 0 or more"


def _huge(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > MOST_EXACT


def _number(value: Any) -> str | None:
    return None if is_number(value) and is_exact(value) else "a number of at most 2^53, without an exponent"


def _step(value: Any) -> str | None:
    return _number(value) or (None if value > 0 else "more than 0")


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else "a string"


def _names(value: Any) -> str | None:
    good = isinstance(value, list) and all(isinstance(item, str) for item in value) and len(set(value)) == len(value)
    return None if good else "a list of different strings"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _values(value: Any) -> str | None:
    return None if isinstance(value, list) and value else "a list of values that is not empty"


def _types(value: Any) -> str | None:
    names = value if isinstance(value, list) else [value]
    good = names and all(isinstance(name, str) and name in TYPES for name in names) and len(set(names)) == len(names)
    return None if good else f"one of {', '.join(TYPES)}, or a list of them"


def _any(value: Any) -> str | None:
    return None


def _of(*types: str, complaint: Callable[[Any], str | None], **where: bool) -> Keyword:
    return Keyword(types=frozenset(types), complaint=complaint, **where)


_NUMBERS = ("integer", "number")

KEYWORDS: Mapping[str, Keyword] = MappingProxyType(
    {
        "type": _of(complaint=_types),
        "enum": _of(complaint=_values),
        "const": _of(complaint=_any),
        "$ref": _of(complaint=_text),
        "$defs": _of(complaint=_named, named=True),
        "definitions": _of(complaint=_named, named=True),
        "allOf": _of(complaint=_schemas, several=True),
        "anyOf": _of(complaint=_schemas, several=True),
        "oneOf": _of(complaint=_schemas, several=True),
        "not": _of(complaint=_schema, one=True),
        "if": _of(complaint=_schema, one=True),
        "then": _of(complaint=_schema, one=True),
        "else": _of(complaint=_schema, one=True),
        "minLength": _of("string", complaint=_count),
        "maxLength": _of("string", complaint=_count),
        "pattern": _of("string", complaint=_text),
        "format": _of("string", complaint=_text),
        "minimum": _of(*_NUMBERS, complaint=_number),
        "maximum": _of(*_NUMBERS, complaint=_number),
        "exclusiveMinimum": _of(*_NUMBERS, complaint=_number),
        "exclusiveMaximum": _of(*_NUMBERS, complaint=_number),
        "multipleOf": _of(*_NUMBERS, complaint=_step),
        "items": _of("array", complaint=_schema, one=True),
        "prefixItems": _of("array", complaint=_schemas, several=True),
        "minItems": _of("array", complaint=_count),
        "maxItems": _of("array", complaint=_count),
        "uniqueItems": _of("array", complaint=_flag),
        "contains": _of("array", complaint=_schema, one=True),
        "minContains": _of("array", complaint=_count),
        "maxContains": _of("array", complaint=_count),
        "unevaluatedItems": _of("array", complaint=_schema, one=True),
        "properties": _of("object", complaint=_named, named=True),
        "required": _of("object", complaint=_names),
        "additionalProperties": _of("object", complaint=_schema, one=True),
        "patternProperties": _of("object", complaint=_named, named=True),
        "propertyNames": _of("object", complaint=_schema, one=True),
        "minProperties": _of("object", complaint=_count),
        "maxProperties": _of("object", complaint=_count),
        "dependentRequired": _of("object", complaint=_any),
        "dependentSchemas": _of("object", complaint=_named, named=True),
        "unevaluatedProperties": _of("object", complaint=_schema, one=True),
    }
)
"""The keywords that say which values are valid, and `$defs`."""

IN_PLACE = ("allOf", "anyOf", "oneOf")
"""Those whose schemas tell about the same value, not about a part of it."""
