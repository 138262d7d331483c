"""Llama's JSON format: one object, several with ";" between them, as the whole answer or behind a tag.

An answer that is JSON and no call is content; so the name comes first, but for the keys that these models put before it, and what
begins otherwise is not held back.
"""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.hookspecs import GrammarSpec, TextStream, Tool, ToolCallParser
from jackfield_parser_tools.json_calls import JsonScanner
from jackfield_parser_tools.scanner import Mode, Steps
from jackfield_parser_tools.structural import Tag, named, tags

TAG = "<|python_tag|>"
TAGS = (TAG, "<|python_start|>")
END = "<|python_end|>"


class LlamaStream(JsonScanner):
    def __init__(self, tools: Sequence[Tool]) -> None:
        super().__init__(tools, first_keys=("type", "id"))
        self._at_start = True

    def run(self) -> Steps[None]:
        if self._at_start:
            self._at_start = False
            self.switch(Mode.HOLD)
            character = yield from self.space()
            if character == "<" and (yield from self.match(TAGS)):
                character = yield from self.space()
        else:
            yield from self.content_until(TAGS)
            character = yield from self.space()
        while character == "{":
            if not (yield from self.object_call()):
                return
            self.switch(Mode.DROP)
            if (yield from self.space()) == ";":
                self.take()
            character = yield from self.space()
            self.switch(Mode.HOLD)
            if character == "<" and (yield from self.match((END,))):
                self.switch(Mode.DROP)
                yield from self.space()
                return


class LlamaParser(ToolCallParser):
    keeps_special_tokens = True

    def stream(self, tools: Sequence[Tool]) -> TextStream:
        return LlamaStream(tools)

    def grammar(self, tools: Sequence[Tool], *, required: bool, parallel: bool) -> GrammarSpec | None:
        if not required:
            return None  # nothing but its place tells a call from an answer in JSON
        return tags(
            [Tag(f'{{"name": {name}, "parameters": ', tool, "}") for name, tool in named(tools)],
            trigger=TAG,
            separator="; ",
            required=True,
            parallel=parallel,
        )
