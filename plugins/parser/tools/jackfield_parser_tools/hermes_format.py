"""Hermes' format: each call a JSON object between two tags. Models also put several between two tags, or forget the end."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.hookspecs import GrammarSpec, TextStream, Tool, ToolCallParser
from jackfield_parser_tools.json_calls import JsonScanner
from jackfield_parser_tools.scanner import Malformed, Mode, Steps
from jackfield_parser_tools.structural import Tag, named, tags

START, END = "<tool_call>", "</tool_call>"


class HermesStream(JsonScanner):
    def run(self) -> Steps[None]:
        yield from self.content_until((START,))
        while True:
            if (yield from self.space()) != "{":
                raise Malformed
            if not (yield from self.object_call()):
                return
            if not (yield from self._goes_on()):
                return

    def _goes_on(self) -> Steps[bool]:
        """Behind a call: leave out whitespace and the end; True if another call comes."""
        self.switch(Mode.DROP)
        ended = False
        while True:
            character = yield from self.space()
            if character == "{" and not ended:
                self.switch(Mode.HOLD)
                return True
            if character != "<":
                return False
            self.switch(Mode.HOLD)
            mark = yield from self.match((START,) if ended else (START, END))
            if not mark:
                raise Malformed
            if mark == START:
                return True
            ended = True
            self.switch(Mode.DROP)


class HermesParser(ToolCallParser):
    def stream(self, tools: Sequence[Tool]) -> TextStream:
        return HermesStream(tools)

    def grammar(self, tools: Sequence[Tool], *, required: bool, parallel: bool) -> GrammarSpec | None:
        return tags(
            [Tag(f'{START}\n{{"name": {name}, "arguments": ', tool, f"}}\n{END}") for name, tool in named(tools)],
            trigger=START,
            separator="\n",
            required=required,
            parallel=parallel,
        )
