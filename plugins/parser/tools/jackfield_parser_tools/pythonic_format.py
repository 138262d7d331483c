"""Calls as Python writes them, in a list that is the whole answer or stands between two tags. Values are converted to JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from jackfield.hookspecs import GrammarSpec, TextStream, Tool, ToolCallParser
from jackfield_parser_tools.plain_values import escaped
from jackfield_parser_tools.scanner import Malformed, Mode, Scanner, Steps

STARTS = ("<|python_start|>", "<|tool_call_start|>")
ENDS = ("<|python_end|>", "<|tool_call_end|>")
_MOST_IN_A_KEY = 256
_MOST_IN_A_WORD = 64
_DEEPEST = 32
_NUMBER = re.compile(r"-?(0|[1-9][0-9_]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}
_HEX = {"x": 2, "u": 4, "U": 8}


class PythonicStream(Scanner):
    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__()
        self._names = {tool.name for tool in tools}
        self._longest_name = max(map(len, self._names), default=0)
        self._at_start = True

    def run(self) -> Steps[None]:
        if self._at_start:
            self._at_start = False
            self.switch(Mode.HOLD)
            character = yield from self.space()
            if character == "<" and (yield from self.match(STARTS)):
                character = yield from self.space()
        else:
            yield from self.content_until(STARTS)
            character = yield from self.space()
        if character != "[":
            return
        self.take()
        while True:
            yield from self.space()
            yield from self._call()
            self.switch(Mode.DROP)
            if (yield from self.space()) != ",":
                break
            self.take()
            self.switch(Mode.HOLD)
        if (yield from self.peek()) == "]":
            self.take()
        if (yield from self.space()) == "<":
            self.switch(Mode.HOLD)
            if not (yield from self.match(ENDS)):
                return
            self.switch(Mode.DROP)
            yield from self.space()

    def _call(self) -> Steps[None]:
        name = (yield from self.word("(", self._longest_name)).strip()
        if name not in self._names:
            raise Malformed
        self.take()
        began = False
        while (yield from self.space()) != ")":
            key = (yield from self.word("=", _MOST_IN_A_KEY)).strip()
            if not key.isidentifier():
                raise Malformed
            self.take()
            if not began:
                self.begin(name)
            self.give_arguments(f"{', ' if began else '{'}{json.dumps(key, ensure_ascii=False)}: ")
            began = True
            yield from self._value()
            if (yield from self.space()) == ",":
                self.take()
            elif (yield from self.peek()) != ")":
                raise Malformed
        self.take()
        if not began:
            self.begin(name)
        self.give_arguments("}" if began else "{}")

    def _value(self, depth: int = 0) -> Steps[None]:
        character = yield from self.space()
        if character in "\"'":
            self.give_arguments('"')
            yield from self._string()
            self.give_arguments('"')
        elif character in "[({":
            if depth == _DEEPEST:
                raise Malformed
            yield from self._several(character, depth + 1)
        else:
            word = yield from self._word()
            if word not in _WORDS and not _NUMBER.fullmatch(word):
                raise Malformed
            self.give_arguments(_WORDS.get(word) or word.replace("_", ""))

    def _several(self, opens: str, depth: int) -> Steps[None]:
        """A list, a tuple or a dict."""
        closes = {"[": "]", "(": ")", "{": "}"}[opens]
        self.take()
        self.give_arguments("{" if opens == "{" else "[")
        first = True
        while (yield from self.space()) != closes:
            if not first:
                self.give_arguments(", ")
            first = False
            if opens == "{":
                yield from self._key()
            yield from self._value(depth)
            if (yield from self.space()) == ",":
                self.take()
            elif (yield from self.peek()) != closes:
                raise Malformed
        self.take()
        self.give_arguments("}" if opens == "{" else "]")

    def _key(self) -> Steps[None]:
        """A dict's key and the colon; JSON's are strings."""
        self.give_arguments('"')
        if (yield from self.peek()) in "\"'":
            yield from self._string()
        else:
            self.give_arguments(escaped((yield from self._word())))
        self.give_arguments('": ')
        if (yield from self.space()) != ":":
            raise Malformed
        self.take()

    def _word(self) -> Steps[str]:
        word = (yield from self.word(",)]}:", _MOST_IN_A_WORD)).strip()
        if not word:
            raise Malformed
        return word

    def _string(self) -> Steps[None]:
        """What is between two quotes, given as it comes."""
        quote = yield from self.peek()
        self.take()
        while True:
            character = yield from self.through(quote + "\\", lambda text: self.give_arguments(escaped(text)))
            self.take()
            if character == quote:
                return
            self.give_arguments(escaped((yield from self._escape())))

    def _escape(self) -> Steps[str]:
        kind = yield from self.peek()
        self.take()
        if kind not in _HEX:
            return _ESCAPES.get(kind, kind if kind in "\\'\"" else f"\\{kind}")
        digits = ""
        for _ in range(_HEX[kind]):
            digits += yield from self.peek()
            self.take()
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            return f"\\{kind}{digits}"


class PythonicParser(ToolCallParser):
    keeps_special_tokens = True

    def stream(self, tools: Sequence[Tool]) -> TextStream:
        return PythonicStream(tools)

    def grammar(self, tools: Sequence[Tool], *, required: bool, parallel: bool) -> GrammarSpec | None:
        return None  # a schema speaks of JSON; no form of grammar that is known here reads it as Python
