"""How long and how deep may be what constrains an answer: schemas, grammars, tools. Asked before anything compiles or renders
them, whether or not this run can do so; knows nothing of what they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.managers.errors import RequestError
from jackfield.managers.fields.limits import RequestLimits
from jackfield.managers.fields.nesting import size_and_depth, text_is_deeper

SCHEMA_FIELDS = ("json_schema", "response_format", "regex", "ebnf", "structural_tag", "tools", "functions")
_JSON_TEXTS = ("json_schema", "structural_tag")


def check_schemas(sent: Mapping[str, Any], limits: RequestLimits) -> None:
    """Of one request, under the names in `SCHEMA_FIELDS`. Raises RequestError naming the field."""
    for name in SCHEMA_FIELDS:
        if (value := sent.get(name)) is not None:
            check_schema(name, value, limits)


def check_schema(name: str, value: Any, limits: RequestLimits) -> None:
    """A text, or a decoded value. Raises RequestError."""
    if name in ("tools", "functions") and isinstance(value, list | tuple) and len(value) > limits.max_tools:
        raise RequestError(
            f"{name} holds {len(value)} entries; at most {limits.max_tools} are allowed (--max-tools)", param=name
        )
    size, depth = size_and_depth(value, limits.max_schema_bytes, limits.max_schema_depth)
    if size > limits.max_schema_bytes:
        raise RequestError(
            f"{name} is too long: at most {limits.max_schema_bytes} bytes are allowed (--max-schema-bytes)", param=name
        )
    if isinstance(value, str) and name in _JSON_TEXTS:
        deep = text_is_deeper(value.encode("utf-8", "surrogatepass"), limits.max_schema_depth)
    else:
        deep = depth > limits.max_schema_depth
    if deep:
        raise RequestError(
            f"{name} is nested deeper than {limits.max_schema_depth} levels (--max-schema-depth)", param=name
        )
