"""Calls that are JSON objects with a name and arguments: the part that hermes, llama3-json and mistral have in common."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from jackfield.hookspecs import Tool
from jackfield_parser_tools.plain_values import without_surrogates
from jackfield_parser_tools.scanner import Malformed, Mode, Scanner, Steps

ARGUMENTS = ("arguments", "parameters")
EMPTY = "{}"
"""The arguments of a call that has none, or null."""

_MOST_IN_A_KEY = 64
_STRUCTURE = re.compile(r'["{}\[\]]|[^-+.,:\w\s]')
_IN_STRING = re.compile(r'["\\]')
_SCALAR_END = re.compile(r"[^-+.\w]")


class JsonScanner(Scanner):
    """first_keys: keys that may stand before the name; None: any."""

    def __init__(self, tools: Sequence[Tool], first_keys: Collection[str] | None = None) -> None:
        super().__init__()
        self.tools = {tool.name: tool for tool in tools}
        self.longest_name = max(map(len, self.tools), default=0)
        # Each character may be written as an escape of six.
        self._most_in_a_name = 6 * self.longest_name + 2
        self._first_keys = first_keys

    def object_call(self) -> Steps[bool]:
        """Read {"name": ..., "arguments": {...}}, held so far. False: the name is no tool's, and all of it is content. Once the
        call has begun, what breaks the object off ends it, and is not read."""
        before = self.begun
        try:
            return (yield from self._object_call())
        except Malformed:
            if self.begun == before:
                raise
            return True

    def _object_call(self) -> Steps[bool]:
        name: str | None = None
        arguments: str | None = None
        refused, before = False, self.begun
        yield from self.expect("{")
        while (yield from self.space()) != "}":
            key = yield from self._key()
            if key == "name" and name is None:
                name = yield from self._text(self._most_in_a_name)
                if name not in self.tools:
                    refused = True
                    self.switch(Mode.CONTENT)
                elif arguments is not None:
                    self.begin(name)
                    self.give_arguments(arguments)
            elif key in ARGUMENTS and arguments is None and not refused:
                arguments = yield from self._arguments(name)
            elif name is None and self._first_keys is not None and key not in self._first_keys:
                raise Malformed
            else:
                yield from self.value()
            if (yield from self.space()) == ",":
                self.take()
            elif (yield from self.peek()) != "}":
                raise Malformed
        self.take()
        if name is None:
            raise Malformed
        if self.begun == before and not refused:
            self.begin(name)
            self.give_arguments(EMPTY)
        return not refused

    def arguments_of(self, name: str, call_id: str | None = None) -> Steps[bool]:
        """The object that comes next, as the arguments of this call, whose beginning is held. False: the name is no tool's, and
        all of it is content."""
        if name in self.tools:
            self.begin(name, call_id)
            yield from self.arguments_object()
            return True
        self.switch(Mode.CONTENT)
        yield from self.nested()
        return False

    def arguments_object(self) -> Steps[None]:
        """The object that comes next, as the arguments of the call that has begun. One that breaks off where no JSON can go on
        ends there."""
        self.switch(Mode.ARGUMENTS)
        with suppress(Malformed):
            yield from self.nested()
        self.switch(Mode.DROP)

    def nested(self) -> Steps[None]:
        """An object or a list, up to its end: by its brackets, of which those within strings do not count."""
        depth = 0
        while True:
            character = yield from self.jump(_STRUCTURE)
            if character not in '"{}[]':
                raise Malformed
            self.take()
            if character == '"':
                yield from self._rest_of_string()
            elif character in "{[":
                depth += 1
            else:
                depth -= 1
                if depth == 0:
                    return

    def value(self) -> Steps[None]:
        """Any JSON value. Raises Malformed if nothing that looks like one comes."""
        character = yield from self.space()
        if character == '"':
            self.take()
            yield from self._rest_of_string()
        elif character in "{[":
            yield from self.nested()
        elif _SCALAR_END.match(character):
            raise Malformed
        else:
            yield from self.jump(_SCALAR_END)

    def _key(self) -> Steps[str]:
        key = yield from self._text(_MOST_IN_A_KEY)
        yield from self.expect(":")
        yield from self.space()
        return key

    def _text(self, most: int | None = None) -> Steps[str]:
        """A JSON string, decoded. Raises Malformed for anything else, and for one of more characters."""
        if (yield from self.space()) != '"':
            raise Malformed
        raw = yield from self.copied(self._string(most))
        text = decoded(raw)
        if not isinstance(text, str):
            raise Malformed
        return text

    def _string(self, most: int | None) -> Steps[None]:
        self.take()
        if most is None:
            yield from self._rest_of_string()
            return
        for _ in range(most):
            character = yield from self.peek()
            self.take()
            if character == '"':
                return
            if character == "\\":
                yield from self.peek()
                self.take()
        raise Malformed

    def _rest_of_string(self) -> Steps[None]:
        while True:
            character = yield from self.jump(_IN_STRING)
            self.take()
            if character == '"':
                return
            yield from self.peek()
            self.take()

    def _arguments(self, name: str | None) -> Steps[str | None]:
        """The value of the arguments; given, if the name is known. None: null."""
        character = yield from self.peek()
        if character == "{":
            if name is None:
                return (yield from self.copied(self.nested()))
            self.begin(name)
            yield from self.arguments_object()
            return EMPTY
        if character == '"':
            # Some models write the arguments as OpenAI's API does: JSON within a string.
            text = yield from self._text()
            if not isinstance(decoded(text), dict):
                raise Malformed
            text = without_surrogates(text)
        else:
            if (yield from self.copied(self.value())) != "null":
                raise Malformed
            text = EMPTY
        if name is not None:
            self.begin(name)
            self.give_arguments(text)
        return text


def decoded(text: str) -> Any:
    """The JSON value, control characters within strings allowed; None if it is none, and for null."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
