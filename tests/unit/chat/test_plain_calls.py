"""The core's own format of calls: what the grammar describes is read as calls, at every split."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from jackfield.hookspecs.parser import CallArguments, CallBegin, Content, Piece, Tool
from jackfield.managers.chat.plain_calls import PlainCalls, plain_grammar

TOOLS = (Tool(name="f"), Tool(name='q"\\uote', parameters={"properties": {"a": {"type": "integer"}}}))


def read(chunks: Iterable[str]) -> list[tuple[str, str]]:
    """(sort or name of the call, its text), joined."""
    stream = PlainCalls(TOOLS)
    pieces: list[Piece] = [piece for chunk in chunks for piece in stream.feed(chunk)]
    found: list[tuple[str, str]] = []
    for piece in [*pieces, *stream.finish()]:
        match piece:
            case CallBegin(name=name):
                found.append((name, ""))
            case CallArguments(text=text):
                found[-1] = (found[-1][0], found[-1][1] + text)
            case Content(text=text) if found and found[-1][0] == "content":
                found[-1] = ("content", found[-1][1] + text)
            case Content(text=text):
                found.append(("content", text))
    return found


CASES = [
    ('[{"name": "f", "arguments": {}}]', [("f", "{}")]),
    ('[{"name":"f","arguments":{"a":"}]\\"{"}},\n{"name": "f", "arguments": {"b": [{}]}}]',
     [("f", '{"a":"}]\\"{"}'), ("f", '{"b": [{}]}')]),
    (' [ { "name" : "q\\"\\\\uote" , "arguments" : {"a": 1} } ] ', [('q"\\uote', '{"a": 1}')]),
    ('[{"name": "f", "arguments": {"a": "cut', [("f", '{"a": "cut')]),
    ('[{"name": "f", "argum', [("content", '[{"name": "f", "argum')]),
    ('[{"name": "f", "arguments": {}}, {"name": "f"', [("f", "{}"), ("content", ' {"name": "f"')]),
    ('[{"name": "other", "arguments": {}}]', [("content", '[{"name": "other", "arguments": {}}]')]),
    ("Sure! I will", [("content", "Sure! I will")]),
    ('[{"name": "f", "arguments": [1]}]', [("content", '[{"name": "f", "arguments": [1]}]')]),
    ('[{"name": "f", "arguments": {}}] and more', [("f", "{}"), ("content", "and more")]),
    ("", []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_every_split_reads_the_same(text: str, expected: list[tuple[str, str]]) -> None:
    assert read([text]) == expected
    assert read(text) == expected
    for cut in range(len(text)):
        assert read([text[:cut], text[cut:]]) == expected


def test_the_grammar_says_what_is_read() -> None:
    spec = plain_grammar(TOOLS, parallel=True)
    schema = json.loads(spec.source)
    assert spec.form == "json_schema"
    assert schema["minItems"] == 1
    assert "maxItems" not in schema
    assert [item["properties"]["name"]["const"] for item in schema["items"]["anyOf"]] == [tool.name for tool in TOOLS]
    one = json.loads(plain_grammar(TOOLS[:1], parallel=False).source)
    assert one["maxItems"] == 1
    assert one["items"]["properties"]["arguments"] == {"type": "object"}
    assert list(one["items"]["properties"]) == one["items"]["required"] == ["name", "arguments"]


def test_references_of_a_tools_schema_go_with_it() -> None:
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "kind": {"$ref": "#/$defs/kind"}},
        "$defs": {"kind": {}},
    }
    schema = json.loads(plain_grammar([Tool(name="f", parameters=node)], parallel=True).source)
    assert schema["items"]["properties"]["arguments"] == {"$ref": "#/$defs/tool_0"}
    moved = schema["$defs"]["tool_0"]
    assert moved["properties"] == {"next": {"$ref": "#/$defs/tool_0"}, "kind": {"$ref": "#/$defs/tool_0/$defs/kind"}}
