"""Tool call parsers with one fault each, of a format that is a line: "!name {...}" with a line break behind it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jackfield.hookspecs import (
    CallArguments,
    CallBegin,
    Content,
    GrammarSpec,
    Parser,
    Piece,
    ReasoningParser,
    TextStream,
    Tool,
    ToolCallParser,
    hookimpl,
)

CUT = "pieces_do_not_depend_on_how_the_text_is_cut"
CALLS = "what_its_grammar_allows_are_calls"
UNKNOWN = "unknown_names_are_content"
NO_CALL = "what_is_no_call_is_content"
CAUGHT = {
    "good": (),
    "loses-the-end": (NO_CALL,),
    "reads-chunks": (CUT, "no_text_is_an_error", "streams_are_apart", CALLS, NO_CALL),
    "raises-for-a-brace": ("no_text_is_an_error", "*"),
    "reads-all-again": ("work_is_linear",),
    "waits-for-the-end": ("plain_words_are_not_held_back",),
    "says-nothing": ("every_piece_says_something", CALLS, NO_CALL),
    "one-for-all": ("streams_are_apart",),
    "other-sort": ("it_is_the_sort_that_it_declares", "*"),
    "other-grammar": (CALLS, UNKNOWN),
    "calls-anything": (UNKNOWN,),
    "gives-no-arguments": (CALLS,),
    "trims": ("plain_text_is_itself", NO_CALL),
}


class Line(TextStream):
    """Holds a line back that begins with a call's mark, and gives all others as they come."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.begins = True
        self.line: list[str] | None = None

    def feed(self, text: str) -> Sequence[Piece]:
        return [piece for character in text for piece in self.read(character)]

    def finish(self) -> Sequence[Piece]:
        line, self.line = self.line, None
        return [] if line is None else [Content(text="".join(line))]

    def read(self, character: str) -> list[Piece]:
        begins, self.begins = self.begins, character == "\n"
        if self.line is None and not (begins and character == "!"):
            return [Content(text=character)]
        self.line = [] if self.line is None else self.line
        self.line.append(character)
        if character != "\n":
            return []
        line, self.line = "".join(self.line), None
        return self.call(line)

    def call(self, line: str) -> list[Piece]:
        name, _, arguments = line[1:].partition(" ")
        try:
            good = isinstance(json.loads(arguments), dict)
        except (ValueError, RecursionError):
            good = False
        if name not in self.names or not good:
            return [Content(text=line)]
        return [CallBegin(name=name), CallArguments(text=arguments)]


class Good(ToolCallParser):
    def stream(self, tools: Sequence[Tool]) -> TextStream:
        return Line({tool.name for tool in tools})

    def grammar(self, tools: Sequence[Tool], *, required: bool, parallel: bool) -> GrammarSpec | None:
        return self.lines(tools, parallel, "!")

    def lines(self, tools: Sequence[Tool], parallel: bool, mark: str) -> GrammarSpec:
        tags = [
            {
                "type": "tag",
                "begin": f"{mark}{tool.name} ",
                "content": {"type": "json_schema", "json_schema": dict(tool.parameters) or {"type": "object"}},
                "end": "\n",
            }
            for tool in tools
        ]
        layout = {"type": "tags_with_separator", "tags": tags, "separator": "", "stop_after_first": not parallel}
        return GrammarSpec(form="structural_tag", source=json.dumps({"type": "structural_tag", "format": layout}))


class Faulty(Good):
    """Streams of a class of their own."""

    kind: type[Line]

    def stream(self, tools: Sequence[Tool]) -> TextStream:
        return self.kind({tool.name for tool in tools})


class LosesTheEnd(Faulty):
    class kind(Line):
        def finish(self) -> Sequence[Piece]:
            return []


class ReadsChunks(Faulty):
    class kind(Line):
        def feed(self, text: str) -> Sequence[Piece]:
            pieces: list[Piece] = []
            for line in text.splitlines(keepends=True):
                whole = line.startswith("!") and line.endswith("\n")
                pieces += self.call(line) if whole else [Content(text=line)]
            return pieces


class RaisesForABrace(Faulty):
    class kind(Line):
        def feed(self, text: str) -> Sequence[Piece]:
            if "}{" in text:
                raise ValueError(text)
            return super().feed(text)


class ReadsAllAgain(Faulty):
    class kind(Line):
        so_far = ""

        def read(self, character: str) -> list[Piece]:
            self.so_far += character
            assert sum(1 for one in self.so_far if one is not None)
            return super().read(character)


class WaitsForTheEnd(Faulty):
    class kind(Line):
        def feed(self, text: str) -> Sequence[Piece]:
            self.kept: list[Piece] = getattr(self, "kept", [])
            self.kept += super().feed(text)
            return []

        def finish(self) -> Sequence[Piece]:
            return [*getattr(self, "kept", []), *super().finish()]


class SaysNothing(Faulty):
    class kind(Line):
        def finish(self) -> Sequence[Piece]:
            return super().finish() or [Content(text="")]


class OneForAll(Faulty):
    def stream(self, tools: Sequence[Tool]) -> TextStream:
        self.one = getattr(self, "one", None) or self.kind(set())
        self.one.names = {tool.name for tool in tools}
        self.one.begins = True
        return self.one

    kind = Line


class OtherSort(ReasoningParser):
    end = "!"

    def opened(self, prompt_end: str) -> bool:
        return False

    def stream(self, *, opened: bool) -> TextStream:
        return Line(set())


class OtherGrammar(Good):
    def grammar(self, tools: Sequence[Tool], *, required: bool, parallel: bool) -> GrammarSpec | None:
        return self.lines(tools, parallel, "?")


class CallsAnything(Faulty):
    class kind(Line):
        def call(self, line: str) -> list[Piece]:
            self.names = {line[1:].partition(" ")[0]}
            return super().call(line)


class GivesNoArguments(Faulty):
    class kind(Line):
        def call(self, line: str) -> list[Piece]:
            return super().call(line)[:1]


class Trims(Faulty):
    class kind(Line):
        def read(self, character: str) -> list[Piece]:
            return [piece for piece in super().read(character) if piece != Content(text="\n")]


@hookimpl
def jackfield_parser(context: Any) -> Parser:
    made: Parser = globals()[context.name.replace("-", " ").title().replace(" ", "")]()
    return made
