"""OpenAI's strict schemas: what its API takes passes, what it refuses is refused with the place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jackfield.grammars.openai_strict import check_openai_strict
from jackfield.hookspecs import GrammarError

STRING = {"type": "string"}


def strict(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    } | more


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = STRING
    for _ in range(depth):
        schema = strict({"items": schema})
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        strict({}),
        strict({"a": STRING, "b": {"type": ["integer", "null"], "minimum": 1}}),
        strict({"steps": {"type": "array", "items": strict({"text": STRING}), "maxItems": 3}}),
        strict({"a": {"anyOf": [strict({"x": {"const": 1}}), {"type": "null"}]}}),
        strict({"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}),
        strict({"a": {"$ref": "#/$defs/t"}}, **{"$defs": {"t": strict({"kind": {"enum": ["a", "b"]}})}}),
        nested(10),
    ],
)
def test_what_openai_takes_passes(schema: Any) -> None:
    check_openai_strict(schema)
    check_openai_strict(json.dumps(schema))


@pytest.mark.parametrize(
    ("schema", "pointer", "word"),
    [
        (STRING, "/type", "root"),
        (True, "/type", "root"),
        ({"anyOf": [strict({})]}, "/type", "root"),
        (strict({}, anyOf=[strict({})]), "/anyOf", "root"),
        ({"type": "object", "properties": {"a": STRING}, "required": ["a"]}, "/additionalProperties", "false"),
        (strict({"a": {"type": "object"}}), "/properties/a/additionalProperties", "false"),
        (strict({"a": STRING, "b": STRING}, required=["a"]), "/required", "'b' is not"),
        (strict({"a": STRING}, required=["a", "c"]), "/required", "'c' is no property"),
        (strict({"a": {"allOf": [STRING]}}), "/properties/a/allOf", "not permitted"),
        (strict({"a": {"type": "array", "items": STRING, "uniqueItems": True}}), "/properties/a/uniqueItems", "not permitted"),
        (strict({"a": {"description": "anything"}}), "/properties/a", "type"),
        (strict({"a": {"type": "strng"}}), "/properties/a/type", "string"),
        (nested(11), None, "10 deep"),
        (strict({"a": {"enum": [f"{n}" for n in range(1001)]}}), "/", "1,000 values"),
        (strict({"a": {"const": "x" * 120_001}}), "/", "characters"),
        (strict({f"p{n}": STRING for n in range(5001)}), "/", "properties"),
        ("{", "", "no JSON"),
    ],
)  # fmt: skip
def test_what_openai_refuses_is_refused_with_its_place(schema: Any, pointer: str | None, word: str) -> None:
    with pytest.raises(GrammarError) as caught:
        check_openai_strict(schema)
    assert pointer is None or caught.value.keyword == pointer
    assert word in caught.value.message
