"""Mistral's formats behind [TOOL_CALLS]: a list of JSON objects (tokenizers before v11), or name[ARGS]{...}, with [CALL_ID]
between the two in some models, and without any mark where special tokens were left out."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.hookspecs import GrammarSpec, TextStream, Tool, ToolCallParser
from jackfield_parser_tools.json_calls import JsonScanner
from jackfield_parser_tools.scanner import Malformed, Mode, Steps
from jackfield_parser_tools.structural import Tag, named, tags

CALLS, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_MOST_IN_AN_ID = 64


class MistralStream(JsonScanner):
    def run(self) -> Steps[None]:
        yield from self.content_until((CALLS,))
        accepted = yield from (self._list() if (yield from self.space()) == "[" else self._named_call())
        if accepted:
            self.switch(Mode.DROP)
            yield from self.space()

    def _list(self) -> Steps[bool]:
        self.take()
        while True:
            yield from self.space()
            if not (yield from self.object_call()):
                return False
            self.switch(Mode.DROP)
            character = yield from self.space()
            if character not in ",]":
                return True
            self.take()
            if character == "]":
                return True
            self.switch(Mode.HOLD)

    def _named_call(self) -> Steps[bool]:
        name = (yield from self.word("[{", self.longest_name + 8)).strip()
        call_id = None
        if (yield from self.peek()) == "[":
            mark = yield from self.match((ARGS, CALL_ID))
            if mark == CALL_ID:
                call_id = yield from self.word("[", _MOST_IN_AN_ID)
                mark = yield from self.match((ARGS,))
            if not mark:
                raise Malformed
        if (yield from self.space()) != "{":
            raise Malformed
        return (yield from self.arguments_of(name, call_id))


class MistralParser(ToolCallParser):
    """chat_template: tells which of the two formats the model writes."""

    keeps_special_tokens = True

    def __init__(self, chat_template: str = "") -> None:
        self._by_name = ARGS in chat_template

    def stream(self, tools: Sequence[Tool]) -> TextStream:
        return MistralStream(tools)

    def grammar(self, tools: Sequence[Tool], *, required: bool, parallel: bool) -> GrammarSpec | None:
        if self._by_name:
            each = [Tag(f"{CALLS}{tool.name}{ARGS}", tool, "") for tool in tools]
            return tags(each, trigger=CALLS, separator="", required=required, parallel=parallel)
        calls = [(f'{{"name": {name}, "arguments": ', tool) for name, tool in named(tools)]
        if not required:
            each = [Tag(f"{CALLS} [{begin}", tool, "}]") for begin, tool in calls]
            return tags(each, trigger=CALLS, separator="", required=False, parallel=parallel)
        return tags(
            [Tag(begin, tool, "}") for begin, tool in calls],
            trigger=CALLS,
            separator=", ",
            required=True,
            parallel=parallel,
            head=f"{CALLS} [",
            tail="]",
        )
