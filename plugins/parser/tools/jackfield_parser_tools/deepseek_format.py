"""DeepSeek's formats: a name and arguments between marks; V3 and R1 put a word before them and the arguments into a fence, V3.1
does neither. Which of the two it is each call says itself."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.hookspecs import GrammarSpec, TextStream, Tool, ToolCallParser
from jackfield_parser_tools.json_calls import JsonScanner
from jackfield_parser_tools.scanner import Malformed, Mode, Steps
from jackfield_parser_tools.structural import Tag, tags

CALLS_BEGIN, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL_BEGIN, CALL_END, SEPARATOR = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
FENCE, FENCE_JSON = "```", "```json"


class DeepSeekStream(JsonScanner):
    def run(self) -> Steps[None]:
        mark = yield from self.content_until((CALLS_BEGIN, CALL_BEGIN))
        if mark == CALLS_BEGIN:
            yield from self.space()
            if not (yield from self.match((CALL_BEGIN,))):
                raise Malformed
        while (yield from self._call()) and (yield from self._another()):
            pass

    def _call(self) -> Steps[bool]:
        name = yield from self.word("<", self.longest_name + 8)
        if not (yield from self.match((SEPARATOR,))):
            raise Malformed
        if (yield from self.space()) != "{":
            name = yield from self.word("\n", self.longest_name + 8)
            if (yield from self.space()) != "`" or not (yield from self.match((FENCE_JSON,))):
                raise Malformed
            if (yield from self.space()) != "{":
                raise Malformed
        return (yield from self.arguments_of(name.strip()))

    def _another(self) -> Steps[bool]:
        """Behind a call: leave out what closes; True if another call comes."""
        while True:
            self.switch(Mode.DROP)
            character = yield from self.space()
            if character not in "`<":
                return False
            self.switch(Mode.HOLD)
            mark = yield from self.match((FENCE, CALL_END, CALLS_END, CALL_BEGIN, CALLS_BEGIN))
            if not mark:
                raise Malformed
            if mark == CALL_BEGIN:
                return True


class DeepSeekParser(ToolCallParser):
    """chat_template: tells which of the two formats a grammar must have."""

    keeps_special_tokens = True

    def __init__(self, chat_template: str = "") -> None:
        self._fenced = FENCE_JSON in chat_template

    def stream(self, tools: Sequence[Tool]) -> TextStream:
        return DeepSeekStream(tools)

    def grammar(self, tools: Sequence[Tool], *, required: bool, parallel: bool) -> GrammarSpec | None:
        each = []
        for tool in tools:
            if self._fenced:
                begin = f"{CALL_BEGIN}function{SEPARATOR}{tool.name}\n{FENCE_JSON}\n"
                each.append(Tag(begin, tool, f"\n{FENCE}{CALL_END}"))
            else:
                each.append(Tag(f"{CALL_BEGIN}{tool.name}{SEPARATOR}", tool, CALL_END))
        return tags(
            each,
            trigger=CALL_BEGIN,
            separator="\n" if self._fenced else "",
            required=required,
            parallel=parallel,
            head=CALLS_BEGIN,
            tail=CALLS_END,
        )
