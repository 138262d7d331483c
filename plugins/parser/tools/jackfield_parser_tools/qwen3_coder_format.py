"""Qwen3-Coder's format: a function, its parameters between tags, each value as plain text.

Models also leave out the tag round the call, or the one that ends a parameter.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from jackfield.hookspecs import GrammarSpec, TextStream, Tool, ToolCallParser
from jackfield_parser_tools.plain_values import PlainValue, types_of
from jackfield_parser_tools.scanner import Malformed, Mode, Scanner, Steps

START, END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
VALUE_ENDS = (PARAMETER_END, PARAMETER, FUNCTION_END)
_MOST_IN_A_KEY = 256


class QwenCoderStream(Scanner):
    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__()
        self._tools = {tool.name: tool for tool in tools}
        self._longest_name = max(map(len, self._tools), default=0)

    def run(self) -> Steps[None]:
        mark = yield from self.content_until((START, FUNCTION))
        while mark:
            if mark == START:
                yield from self.space()
                if not (yield from self.match((FUNCTION,))):
                    raise Malformed
            yield from self._call()
            mark = yield from self._another()

    def _call(self) -> Steps[None]:
        name = (yield from self.word(">", self._longest_name + 8)).strip()
        if name not in self._tools:
            raise Malformed
        self.take()
        self.begin(name)
        seen: set[str] = set()
        mark = yield from self._mark((PARAMETER, FUNCTION_END, END))
        while mark == PARAMETER:
            key = (yield from self.word(">", _MOST_IN_A_KEY)).strip()
            self.take()
            mark = yield from self._parameter(self._tools[name], key, seen)
        if not mark:
            raise Malformed
        self.give_arguments("}" if seen else "{}")

    def _parameter(self, tool: Tool, key: str, seen: set[str]) -> Steps[str]:
        """Gives the mark behind it."""
        if key in seen:  # the first one counts, since it has been given
            mark = yield from self.until(VALUE_ENDS, lambda text: None)
        else:
            self.give_arguments(f"{', ' if seen else '{'}{json.dumps(key, ensure_ascii=False)}: ")
            seen.add(key)
            value = PlainValue(types_of(tool, key), self.give_arguments)
            mark = yield from self.until(VALUE_ENDS, value.feed)
            value.end()
        if mark != PARAMETER_END:
            return mark
        return (yield from self._mark((PARAMETER, FUNCTION_END, END)))

    def _mark(self, marks: Sequence[str]) -> Steps[str]:
        """Whitespace and one of the marks; "" if something else comes."""
        yield from self.space()
        return (yield from self.match(marks))

    def _another(self) -> Steps[str]:
        """Behind a call: leave out what closes; the mark of the next call, or ""."""
        while True:
            self.switch(Mode.DROP)
            if (yield from self.space()) != "<":
                return ""
            self.switch(Mode.HOLD)
            mark = yield from self.match((END, START, FUNCTION))
            if not mark:
                raise Malformed
            if mark != END:
                return mark


class QwenCoderParser(ToolCallParser):
    def stream(self, tools: Sequence[Tool]) -> TextStream:
        return QwenCoderStream(tools)

    def grammar(self, tools: Sequence[Tool], *, required: bool, parallel: bool) -> GrammarSpec | None:
        return None  # values without quotes: no form that all grammar plugins have can hold them to a schema
