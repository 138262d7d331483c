"""A format of reasoning, `[think]...[/think]`, and one of calls, `<f{...}>`, read one character at a time."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.hookspecs.grammar import GrammarSpec
from jackfield.hookspecs.parser import (
    CallArguments,
    CallBegin,
    Content,
    Piece,
    Reasoning,
    ReasoningParser,
    TextStream,
    Tool,
    ToolCallParser,
)


class Thinking(TextStream):
    BEGIN, END = "[think]", "[/think]"

    def __init__(self, opened: bool) -> None:
        self._inside, self._over, self._held = opened, False, ""

    def feed(self, text: str) -> Sequence[Piece]:
        pieces: list[Piece] = []
        for character in text:
            mark = self.END if self._inside else self.BEGIN
            self._held += character
            if self._over or not mark.startswith(self._held):
                pieces.append(self._piece(self._held))
                self._held = ""
                self._over = self._over or not self._inside
            elif self._held == mark:
                self._over, self._inside, self._held = self._inside, not self._inside, ""
        return pieces

    def _piece(self, text: str) -> Piece:
        return Reasoning(text=text) if self._inside else Content(text=text)

    def finish(self) -> Sequence[Piece]:
        return [self._piece(self._held)] if self._held else []


class Calling(TextStream):
    def __init__(self, tools: Sequence[Tool]) -> None:
        self._names, self._held, self._depth = {tool.name for tool in tools}, "", 0

    def feed(self, text: str) -> Sequence[Piece]:
        pieces: list[Piece] = []
        for character in text:
            if self._depth:
                self._depth += {"{": 1, "}": -1}.get(character, 0)
                pieces.append(CallArguments(text=character))
                continue
            self._held += character
            if character == "{" and self._held[0] == "<" and self._held[1:-1] in self._names:
                pieces += [CallBegin(name=self._held[1:-1]), CallArguments(text="{")]
                self._held, self._depth = "", 1
            elif self._held == ">":
                self._held = ""
            elif self._held[0] != "<":
                pieces.append(Content(text=self._held))
                self._held = ""
        return pieces

    def finish(self) -> Sequence[Piece]:
        return [Content(text=self._held)] if self._held else []


class ThinkParser(ReasoningParser):
    end = Thinking.END
    template_switch = ("enable_thinking",)

    def opened(self, prompt_end: str) -> bool:
        return prompt_end.endswith(Thinking.BEGIN)

    def stream(self, *, opened: bool) -> TextStream:
        return Thinking(opened)


class CallParser(ToolCallParser):
    keeps_special_tokens = True

    def stream(self, tools: Sequence[Tool]) -> TextStream:
        return Calling(tools)

    def grammar(self, tools: Sequence[Tool], *, required: bool, parallel: bool) -> GrammarSpec | None:
        if not required:
            return GrammarSpec(form="ebnf", source=f"{len(tools)} free {parallel}")
        return GrammarSpec(form="regex", source=f"{len(tools)} required {parallel}")


def function(name: str, **more: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, **more}}
