"""Calls as a plain JSON list, for required calls of a model whose own format no grammar describes.

    [{"name": "f", "arguments": {...}}, ...]

The grammar makes the model write exactly this, and `PlainCalls` reads it. Knows no model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jackfield.hookspecs.grammar import GrammarSpec
from jackfield.hookspecs.parser import CallArguments, CallBegin, Content, Piece, TextStream, Tool
from jackfield.managers.chat.response_format import json_text

_SPACE = " \t\r\n"


def plain_grammar(tools: Sequence[Tool], *, parallel: bool) -> GrammarSpec:
    """At least one call, and nothing else."""
    definitions: dict[str, Any] = {}
    items = [_item(tool, f"tool_{i}", definitions) for i, tool in enumerate(tools)]
    schema: dict[str, Any] = {
        "type": "array",
        "minItems": 1,
        "items": items[0] if len(items) == 1 else {"anyOf": items},
    }
    if not parallel:
        schema["maxItems"] = 1
    if definitions:
        schema["$defs"] = definitions
    return GrammarSpec(form="json_schema", source=json_text(schema))


def _item(tool: Tool, key: str, definitions: dict[str, Any]) -> dict[str, Any]:
    parameters: Any = {"type": "object", **tool.parameters}
    moved, any_reference = _moved(parameters, f"#/$defs/{key}")
    if any_reference:
        definitions[key] = moved
        parameters = {"$ref": f"#/$defs/{key}"}
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(schema: Any, root: str) -> tuple[Any, bool]:
    """A copy whose references to its own root point to `root`, and whether there were any."""
    if isinstance(schema, Mapping):
        copy: dict[str, Any] = {}
        found = False
        for name, value in schema.items():
            if name == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
                copy[name], inside = root + value[1:], True
            else:
                copy[name], inside = _moved(value, root)
            found = found or inside
        return copy, found
    if isinstance(schema, list | tuple):
        moved = [_moved(item, root) for item in schema]
        return [item for item, _ in moved], any(inside for _, inside in moved)
    return schema, False


class PlainCalls(TextStream):
    """Reads the list, one character once. What departs from it is content, as written, from there on."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._names = frozenset(tool.name for tool in tools)
        self._state = "list"
        # What was read of a call and not told yet.
        self._held: list[str] = []
        # The head of a call: its strings and marks so far, and the string that is being read.
        self._head: list[str] = []
        self._string: list[str] | None = None
        self._escaped = False
        self._depth = 0
        self._in_string = False

    def feed(self, text: str) -> Sequence[Piece]:
        pieces: list[Piece] = []
        arguments: list[str] = []
        for at, character in enumerate(text):
            if self._state == "arguments":
                arguments.append(character)
                self._value(character)
                if self._state != "arguments":
                    pieces.append(CallArguments(text="".join(arguments)))
                    arguments.clear()
                continue
            if self._state == "broken":
                pieces.append(Content(text=text[at:]))
                break
            self._held.append(character)
            if self._state == "head":
                self._in_head(character, pieces)
                if self._state == "arguments":
                    arguments.append(character)
            elif character not in _SPACE:
                self._between(character)
            if self._state == "broken":
                pieces += self._let_go()
        if arguments:
            pieces.append(CallArguments(text="".join(arguments)))
        return pieces

    def finish(self) -> Sequence[Piece]:
        return [] if self._state in ("arguments", "after", "done", "item") else self._let_go()

    def _let_go(self) -> list[Piece]:
        text = "".join(self._held)
        self._held.clear()
        return [Content(text=text)] if text else []

    def _between(self, character: str) -> None:
        """A mark outside of a call's head and arguments."""
        follows = {
            ("list", "["): "item",
            ("item", "{"): "head",
            ("next", "{"): "head",
            ("after", "}"): "more",
            ("more", ","): "next",
            ("more", "]"): "done",
        }.get((self._state, character), "broken")
        if follows == "broken" and self._state in ("after", "more", "done"):
            # The list's own marks are no content; what came instead of them is.
            self._held = [character]
        self._state = follows
        if follows == "head":
            self._head.clear()
        elif follows in ("more", "next", "done"):
            self._held.clear()

    def _in_head(self, character: str, pieces: list[Piece]) -> None:
        """`"name" : "f" , "arguments" :` and the brace with which the arguments begin."""
        if self._string is not None:
            self._string.append(character)
            if self._escaped:
                self._escaped = False
            elif character == "\\":
                self._escaped = True
            elif character == '"':
                self._head.append("".join(self._string))
                self._string = None
            return
        if character in _SPACE:
            return
        if character == '"':
            self._string = [character]
        elif character == "{" and (name := self._named()) is not None:
            self._held.clear()
            self._state, self._depth, self._in_string = "arguments", 1, False
            pieces.append(CallBegin(name=name))
        elif character in ":," and len(self._head) < 6:
            self._head.append(character)
        else:
            self._state = "broken"

    def _named(self) -> str | None:
        """The tool of a head that is complete."""
        match self._head:
            case ['"name"', ":", quoted, ",", '"arguments"', ":"]:
                try:
                    name = json.loads(quoted)
                except ValueError:
                    return None
                return name if name in self._names else None
        return None

    def _value(self, character: str) -> None:
        if self._in_string:
            if self._escaped:
                self._escaped = False
            elif character == "\\":
                self._escaped = True
            elif character == '"':
                self._in_string = False
        elif character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            if self._depth == 0:
                self._state = "after"
