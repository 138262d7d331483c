"""Hermes' format, whole, broken and cut off."""

from __future__ import annotations

import pytest

from jackfield.hookspecs import CallArguments, CallBegin, Content, Piece, Tool
from jackfield_parser_tools.hermes_format import HermesParser
from jackfield_parser_tools.scanner import joined

TOOLS = [Tool(name="f"), Tool(name="get_weather")]


def read(*chunks: str) -> list[Piece]:
    stream = HermesParser().stream(TOOLS)
    found = [piece for chunk in chunks for piece in stream.feed(chunk)]
    return joined([*found, *stream.finish()])


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("2 < 3", [Content("2 < 3")]),
        (
            'Hi.\n<tool_call>\n{"name": "f", "arguments": {"a": "}</tool_call>\\"", "b": [1, {"c": 2}]}}\n</tool_call>\n'
            '<tool_call>{"name":"get_weather"}</tool_call>\nBye',
            [
                Content("Hi.\n"),
                CallBegin("f"),
                CallArguments('{"a": "}</tool_call>\\"", "b": [1, {"c": 2}]}'),
                CallBegin("get_weather"),
                CallArguments("{}"),
                Content("Bye"),
            ],
        ),
        (
            '<tool_call>{"arguments": {"x": 1}, "name": "f"}{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
            [CallBegin("f"), CallArguments('{"x": 1}'), CallBegin("f"), CallArguments('{"a": 1}')],
        ),
        ('<tool_call>{"name": "no", "arguments": {"t": "<tool_call>"}}</tool_call> x', None),
        ("<tool_call>oops</tool_call>", None),
        ('<tool_call>{"name": "f", "argu', None),
        ("<<tool_call", None),
        ('<tool_call><tool_call>{"name": "f"}', [Content("<tool_call>"), CallBegin("f"), CallArguments("{}")]),
        ('<tool_call>{"name": "f", "arguments": {"a": 1', [CallBegin("f"), CallArguments('{"a": 1')]),
        (
            '<tool_call>{"name": "f", "arguments": {"a": 1</tool_call>more',
            [CallBegin("f"), CallArguments('{"a": 1'), Content("more")],
        ),
    ],
)
def test_what_is_read(text: str, pieces: list[Piece] | None) -> None:
    """None: all of it is content."""
    expected = [Content(text)] if pieces is None else pieces
    assert read(text) == expected
    assert read(*text) == expected
    for place in range(len(text)):
        assert read(text[:place], text[place:]) == expected
