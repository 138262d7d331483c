"""The conformance suite of kind `parser`: pieces that do not depend on how the text is cut, no error for any text, linear work,
little held back, and calls out of whatever its own grammar lets a model write. What a model of the format writes only its author
knows: give `texts`. Needs no torch.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import ClassVar

import pytest

from jackfield.hookspecs import (
    GRAMMAR_FORMS,
    CallArguments,
    CallBegin,
    Content,
    Parser,
    Piece,
    Reasoning,
    ReasoningParser,
    TextStream,
    Tool,
    ToolCallParser,
)
from jackfield.testing.conformance.guards import bytecodes
from jackfield.testing.conformance.structural_texts import texts_of
from jackfield.testing.conformance.suite import Conformance

TOOLS = (
    Tool(name="f"),
    Tool(
        name="get_weather",
        description="The weather of a city",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "units": {"type": ["string", "null"]},
            },
            "required": ["city", "days"],
        },
        strict=True,
    ),
)
PLAIN = "Plain text, 2 < 3 and [1, 2]; {so} \"on\".\n\n```python\nprint('¡olé! 🙂')\n```\n"
MOST_HELD = 64
"""Characters of plain words that may be held back."""
MOST_GROWTH = 2.6
"""Of the work for twice the text."""
_SCRAPS = (*"{}[]\"'\\<>,:()=\n f1", "get_weather", "name", "é🙂")
_HALF = 160


class ParserConformance(Conformance):
    """texts: what models of the format write, whole, broken and cut off, with the tools of `tools`."""

    kind = "parser"
    tools: ClassVar[Sequence[Tool]] = TOOLS
    texts: ClassVar[Sequence[str]] = ()

    @pytest.fixture
    def parser(self) -> Parser:
        made: Parser = self.make()
        return made

    def streams(self, parser: Parser) -> list[Callable[[], TextStream]]:
        """Makers of the streams that the parser gives: of reasoning, inside it and outside."""
        if isinstance(parser, ReasoningParser):
            return [lambda: parser.stream(opened=True), lambda: parser.stream(opened=False)]
        assert isinstance(parser, ToolCallParser)
        return [lambda: parser.stream(self.tools)]

    def marks(self, parser: Parser) -> list[str]:
        """What the plugin says of its format: marks of chat templates, and the end of the reasoning."""
        marks = [mark for alternative in self.manifest().templates for mark in alternative]
        return [*dict.fromkeys(marks), *([parser.end] if isinstance(parser, ReasoningParser) else [])]

    def grammar_texts(self, parser: Parser, *, parallel: bool = True) -> Iterator[tuple[bool, str]]:
        """Whether a call was asked for, and a text of the grammar."""
        if isinstance(parser, ToolCallParser):
            for required in (True, False):
                spec = parser.grammar(self.tools, required=required, parallel=parallel)
                if spec is not None and spec.form == "structural_tag":
                    yield from ((required, text) for text in texts_of(json.loads(spec.source)["format"]))

    def all_texts(self, parser: Parser) -> list[str]:
        found = [*self.texts, PLAIN, *(text for _, text in self.grammar_texts(parser))]
        for mark in self.marks(parser):
            found += [mark, f"a{mark}b", mark[:-1], f"{mark[:-1]}{mark}", f"{mark}{PLAIN}"]
        return list(dict.fromkeys(found))

    def test_it_is_the_sort_that_it_declares(self, parser: Parser) -> None:
        """The hook gives a `ReasoningParser` for the feature "reasoning", a `ToolCallParser` for "tool_calls"."""
        sorts = {"reasoning": ReasoningParser, "tool_calls": ToolCallParser}
        (feature,) = set(self.manifest().features) & set(sorts)
        assert isinstance(parser, sorts[feature]), f"declares {feature!r} and is a {type(parser).__name__}"

    def test_plain_text_is_itself(self, parser: Parser) -> None:
        """Text without any mark of the format comes back as it is: content, or reasoning if that is open."""
        for make in self.streams(parser):
            pieces = read(make(), PLAIN)
            assert "".join(text_of(piece) for piece in pieces) == PLAIN
            assert all(isinstance(piece, Content | Reasoning) for piece in pieces)

    def test_pieces_do_not_depend_on_how_the_text_is_cut(self, parser: Parser) -> None:
        """Cut in two at each place, and in single characters: the pieces joined are those of the whole text."""
        for make in self.streams(parser):
            for text in self.all_texts(parser):
                whole = joined(read(make(), text))
                assert joined(read(make(), *text)) == whole, f"in single characters {text!r} is another answer"
                for place in range(1, len(text)):
                    assert joined(read(make(), text[:place], text[place:])) == whole, f"cut at {place} in {text!r}"

    def test_no_text_is_an_error(self, parser: Parser) -> None:
        """Random texts of marks, brackets, quotes and names are read without an exception, and however they are cut."""
        draw = random.Random(7)
        scraps = [*_SCRAPS, *self.marks(parser), *(text[: len(text) // 2] for _, text in self.grammar_texts(parser))]
        for _ in range(200):
            parts = draw.choices(scraps, k=draw.randrange(1, 30))
            for make in self.streams(parser):
                assert joined(read(make(), *parts)) == joined(read(make(), "".join(parts)))

    def test_every_piece_says_something(self, parser: Parser) -> None:
        """No piece is empty, and arguments come only behind the beginning of a call."""
        for make in self.streams(parser):
            for text in self.all_texts(parser):
                begun = False
                for piece in read(make(), *text):
                    begun = begun or isinstance(piece, CallBegin)
                    assert text_of(piece), f"an empty piece {piece} of {text!r}"
                    assert begun or not isinstance(piece, CallArguments), f"arguments of no call in {text!r}"

    def test_work_is_linear(self, parser: Parser) -> None:
        """Twice the text is at most about twice the bytecodes, in one chunk and in single characters."""
        units = ["word ", "{", '"', "[[", "\n", *self.marks(parser), *(text for _, text in self.grammar_texts(parser))]
        worst = 0.0
        for make in self.streams(parser):
            for unit in units[:12]:
                text = unit * (_HALF // len(unit) + 1)
                for size in (len(text) * 2, 1):
                    once, twice = (bytecodes(partial(read_cut, make, given, size)) for given in (text, text * 2))
                    worst = max(worst, twice / once)
                    assert twice <= MOST_GROWTH * once + 500, (
                        f"{unit!r} repeated: {once} bytecodes, for twice as much {twice}"
                    )
        self.measured("growth of the work for twice the text, at most", worst)

    def test_plain_words_are_not_held_back(self, parser: Parser) -> None:
        """Of a plain text at most a few characters wait for more, at any time."""
        for make in self.streams(parser):
            stream, given = make(), 0
            for count, character in enumerate(PLAIN.replace("\n", " ") * 4, start=1):
                given += sum(len(text_of(piece)) for piece in stream.feed(character))
                assert count - given <= MOST_HELD, f"{count - given} characters are held back after {count}"

    def test_streams_are_apart(self, parser: Parser) -> None:
        """Two choices that are read in turn do not know of each other."""
        for make in self.streams(parser):
            texts = self.all_texts(parser)[:8]
            for one, other in zip(texts, reversed(texts), strict=True):
                first, second = make(), make()
                pieces: tuple[list[Piece], list[Piece]] = ([], [])
                for at in range(max(len(one), len(other))):
                    pieces[0].extend(first.feed(one[at : at + 1]))
                    pieces[1].extend(second.feed(other[at : at + 1]))
                pieces[0].extend(first.finish())
                pieces[1].extend(second.finish())
                assert joined(pieces[0]) == joined(read(make(), one))
                assert joined(pieces[1]) == joined(read(make(), other))

    def test_reasoning_ends_at_its_end(self, parser: Parser) -> None:
        """Opened: what stands before `end` is reasoning, what stands behind it content; without `end` all is reasoning."""
        self.needs_feature("reasoning")
        assert isinstance(parser, ReasoningParser)
        assert parser.end
        pieces = joined(read(parser.stream(opened=True), f"Hm.{parser.end}Yes."))
        assert pieces == [Reasoning(text="Hm."), Content(text="Yes.")]
        for cut in ("", parser.end[:1], parser.end[:-1]):
            assert joined(read(parser.stream(opened=True), f"Hm.{cut}")) == [Reasoning(text=f"Hm.{cut}")]

    def test_opened_is_asked_of_any_prompt(self, parser: Parser) -> None:
        """`opened` says yes or no for the end of any prompt, and gives the same answer twice."""
        self.needs_feature("reasoning")
        assert isinstance(parser, ReasoningParser)
        for end in ("", PLAIN, *self.marks(parser), *(mark[:-1] for mark in self.marks(parser))):
            assert parser.opened(end) in (True, False)
            assert parser.opened(end) == parser.opened(end)
        assert all(isinstance(name, str) for name in parser.template_switch)

    def test_what_its_grammar_allows_are_calls(self, parser: Parser) -> None:
        """Texts that its grammar lets a model write are read as calls of the tools, with arguments that are JSON objects."""
        self.needs_feature("tool_calls")
        assert isinstance(parser, ToolCallParser)
        specs = [parser.grammar(self.tools, required=one, parallel=True) for one in (True, False)]
        if specs == [None, None]:
            self.not_claimed("no grammar describes the format")
        assert all(spec is None or spec.form in GRAMMAR_FORMS for spec in specs)
        for parallel in (True, False):
            for required, text in self.grammar_texts(parser, parallel=parallel):
                pieces = joined(read(parser.stream(self.tools), text))
                names = [piece.name for piece in pieces if isinstance(piece, CallBegin)]
                assert names, f"no call in {text!r}"
                assert set(names) <= {tool.name for tool in self.tools}
                assert parallel or len(names) == 1
                arguments = [json.loads(piece.text) for piece in pieces if isinstance(piece, CallArguments)]
                assert len(arguments) == len(names), f"calls without arguments in {text!r}"
                assert all(isinstance(one, dict) for one in arguments)
                rest = [piece for piece in pieces if isinstance(piece, Content)]
                assert not (required and rest), f"a call was asked for, and {text!r} has content: {rest}"

    def test_what_is_no_call_is_content(self, parser: Parser) -> None:
        """A text that is cut off before a call begins is content, all of it, as written; nothing is lost."""
        self.needs_feature("tool_calls")
        assert isinstance(parser, ToolCallParser)
        for text in self.all_texts(parser):
            for length in range(len(text)):
                pieces = joined(read(parser.stream(self.tools), text[:length]))
                if not any(isinstance(piece, CallBegin) for piece in pieces):
                    content = [Content(text=text[:length])] if length else []
                    assert pieces == content, f"{text[:length]!r} is cut off, and gives {pieces}"

    def test_unknown_names_are_content(self, parser: Parser) -> None:
        """A call of a function that was not offered is content, as written."""
        self.needs_feature("tool_calls")
        assert isinstance(parser, ToolCallParser)
        texts = [text for _, text in self.grammar_texts(parser)]
        if not texts:
            self.not_claimed("no grammar describes the format")
        for text in texts:
            assert joined(read(parser.stream([Tool(name="another")]), text)) == [Content(text=text)]
            assert joined(read(parser.stream([]), text)) == [Content(text=text)]


def read(stream: TextStream, *chunks: str) -> list[Piece]:
    """All pieces of a text that comes in these chunks."""
    pieces = [piece for chunk in chunks for piece in stream.feed(chunk)]
    return [*pieces, *stream.finish()]


def read_cut(make: Callable[[], TextStream], text: str, size: int) -> list[Piece]:
    """All pieces of a text that comes in chunks of so many characters."""
    return read(make(), *(text[at : at + size] for at in range(0, len(text), size)))


def text_of(piece: Piece) -> str:
    return piece.name if isinstance(piece, CallBegin) else piece.text


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces of one sort behind each other as one."""
    result: list[Piece] = []
    for piece in pieces:
        last = result[-1] if result else None
        if last is not None and type(piece) is type(last) and not isinstance(last, CallBegin):
            result[-1] = type(last)(text=last.text + text_of(piece))
        else:
            result.append(piece)
    return result
