"""OpenAI's `response_format` as the grammar that it asks for. Knows no backend: whether one can honour it is not asked here.

Policy: `strict` or not, a schema is honoured in full or refused; nothing is loosened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jackfield.hookspecs.grammar import GrammarSpec
from jackfield.managers.errors import RequestError, shown

ANY_OBJECT = GrammarSpec(form="json_schema", source='{"type":"object"}')
_FIELD = "response_format"


def response_grammar(wanted: Any) -> GrammarSpec | None:
    """None: any text. Raises RequestError naming the place."""
    if wanted is None:
        return None
    if not isinstance(wanted, Mapping):
        raise RequestError(f"{_FIELD} must be an object with a type", param=_FIELD)
    match wanted.get("type"):
        case "text":
            return None
        case "json_object":
            return ANY_OBJECT
        case "json_schema":
            return _schema(wanted.get("json_schema"))
        case "structural_tag":
            return GrammarSpec(form="structural_tag", source=json_text(wanted))
    raise RequestError(
        f"{_FIELD}.type {shown(wanted.get('type'))} is not supported: text, json_object, json_schema and structural_tag are",
        param=f"{_FIELD}.type",
    )


def _schema(described: Any) -> GrammarSpec:
    where = f"{_FIELD}.json_schema"
    if not isinstance(described, Mapping):
        raise RequestError(f"{where} must be an object with name and schema", param=where)
    schema, strict = described.get("schema"), described.get("strict")
    if not isinstance(schema, Mapping):
        raise RequestError(f"{where}.schema must be a JSON schema, an object", param=f"{where}.schema")
    if strict is not None and not isinstance(strict, bool):
        raise RequestError(f"{where}.strict must be true or false", param=f"{where}.strict")
    return GrammarSpec(form="json_schema", source=json_text(schema))


def json_text(value: Any) -> str:
    """In the order in which the client wrote it: a grammar writes properties in the schema's order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")
