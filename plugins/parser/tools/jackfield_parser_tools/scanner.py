"""A stream as a program that reads: a format is written as a generator that waits for text wherever it needs more.

What has been read goes, by the mode of the moment, to the content, to the arguments of the latest call, or nowhere; or it is
held until it is known where it belongs. Each character is looked at once. Knows no format.
"""

from __future__ import annotations

import enum
import re
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import TypeVar

from jackfield.hookspecs import CallArguments, CallBegin, Content, Piece, TextStream

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A part of the program; it gives up its turn when the text is used up."""

_NO_SPACE = re.compile(r"[^ \t\r\n]")


class Mode(enum.Enum):
    """Where the text goes that is read: to the content, to the arguments, nowhere; HOLD: that is not known yet."""

    CONTENT = enum.auto()
    ARGUMENTS = enum.auto()
    DROP = enum.auto()
    HOLD = enum.auto()


class Malformed(Exception):
    """What is read is no call: what is held becomes content, and the program begins again, here."""


class _End(Exception):
    """The text is over."""


class Scanner(TextStream):
    """`run` reads one stretch of text and, if there are any, calls. It is run again and again until the text is over.

    begun   calls so far
    """

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._chunk = ""
        self._at = 0  # the next character
        self._from = 0  # from here on what is read has not gone anywhere
        self._mode = Mode.CONTENT
        self._held: list[str] = []
        self._copy: list[str] | None = None
        self._copy_from = 0
        self._ended = False
        self.begun = 0
        self.tried = ""
        self._program = self._run_on()

    @abstractmethod
    def run(self) -> Steps[None]:
        """It begins in the mode CONTENT. Raises Malformed."""

    def feed(self, text: str) -> Sequence[Piece]:
        if text:
            self._chunk, self._at, self._from, self._copy_from = text, 0, 0, 0
            next(self._program)
        return self._taken()

    def finish(self) -> Sequence[Piece]:
        self._ended = True
        next(self._program, None)
        return self._taken()

    def _run_on(self) -> Steps[None]:
        try:
            while True:
                with suppress(Malformed):
                    yield from self.run()
                self._copy = None
                self.switch(Mode.CONTENT)
        except _End:
            self.switch(Mode.CONTENT)

    def _taken(self) -> Sequence[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces if len(pieces) < 2 else joined(pieces)

    # What happens to the text.

    def switch(self, mode: Mode) -> None:
        """Of HOLD: what is held becomes content with CONTENT, and is left out with any other mode."""
        self._settle()
        if self._mode is Mode.HOLD and mode is not Mode.HOLD:
            if mode is Mode.CONTENT:
                self._pieces.extend(Content(text=text) for text in self._held)
            self._held = []
        self._mode = mode

    def begin(self, name: str, call_id: str | None = None) -> None:
        """A call begins; what is held was its beginning."""
        self.switch(Mode.DROP)
        self._pieces.append(CallBegin(name=name, id=call_id))
        self.begun += 1

    def give_arguments(self, text: str) -> None:
        """Arguments that do not stand in the text as they are."""
        if text:
            self._pieces.append(CallArguments(text=text))

    def _settle(self) -> None:
        if text := self._chunk[self._from : self._at]:
            if self._mode is Mode.HOLD:
                self._held.append(text)
            elif self._mode is Mode.CONTENT:
                self._pieces.append(Content(text=text))
            elif self._mode is Mode.ARGUMENTS:
                self._pieces.append(CallArguments(text=text))
        self._from = self._at

    # Reading.

    def more(self) -> Steps[None]:
        """The text is used up: wait for more."""
        self._settle()
        if self._copy is not None:
            self._copy.append(self._chunk[self._copy_from :])
        if not self._ended:
            yield
        if self._ended:
            raise _End

    def peek(self) -> Steps[str]:
        """The next character, which is not read yet."""
        while self._at == len(self._chunk):
            yield from self.more()
        return self._chunk[self._at]

    def take(self) -> None:
        """Read the character that `peek` or `jump` gave."""
        self._at += 1

    def jump(self, pattern: re.Pattern[str]) -> Steps[str]:
        """Read up to the next character of the pattern, which matches single characters, and give that one."""
        while True:
            if found := pattern.search(self._chunk, self._at):
                self._at = found.start()
                return found.group()
            self._at = len(self._chunk)
            yield from self.more()

    def through(self, stops: str, give: Callable[[str], None]) -> Steps[str]:
        """Read up to one of these characters, and give that one; the text before it is given as it comes."""
        pattern = _characters(stops)
        while True:
            found = pattern.search(self._chunk, self._at)
            end = found.start() if found else len(self._chunk)
            if end > self._at:
                give(self._chunk[self._at : end])
                self._at = end
            if found:
                return found.group()
            yield from self.more()

    def space(self) -> Steps[str]:
        """Read whitespace; gives the character behind it."""
        return (yield from self.jump(_NO_SPACE))

    def expect(self, character: str) -> Steps[None]:
        """Whitespace and this character. Raises Malformed."""
        if (yield from self.space()) != character:
            raise Malformed
        self.take()

    def match(self, marks: Iterable[str]) -> Steps[str]:
        """Read the one of the marks that comes next; "" if none does, and then what looked like one is read, and is `tried`. Of
        two marks none may begin with the other, and the first character of one must not stand in it again."""
        got = ""
        while True:
            longer = got + (yield from self.peek())
            marks = [mark for mark in marks if mark.startswith(longer)]
            if not marks:
                self.tried = got
                return ""
            self.take()
            got = longer
            if got in marks:
                return got

    def word(self, ends: str, most: int) -> Steps[str]:
        """The text before one of these characters. Raises Malformed if it is longer than `most`."""
        pattern, parts = _characters(ends), []
        while True:
            found = pattern.search(self._chunk, self._at, self._at + most)
            end = found.start() if found else min(len(self._chunk), self._at + most)
            parts.append(self._chunk[self._at : end])
            most -= end - self._at
            self._at = end
            if found or (yield from self.peek()) in ends:
                return "".join(parts)
            if not most:
                raise Malformed

    def content_until(self, marks: tuple[str, ...]) -> Steps[str]:
        """Everything up to one of the marks is content. Gives the mark, which is held."""
        search = marks_of(marks)
        while True:
            self.switch(Mode.CONTENT)
            mark, self._at = search.find(self._chunk, self._at)
            if not mark and self._at == len(self._chunk):
                yield from self.more()
                continue
            self.switch(Mode.HOLD)
            if mark := (yield from self.match(marks)):
                return mark

    def until(self, marks: tuple[str, ...], give: Callable[[str], None]) -> Steps[str]:
        """Read up to one of the marks, and that; the text before it is given as it comes. Gives the mark."""
        search = marks_of(marks)
        while True:
            before = self._at
            mark, self._at = search.find(self._chunk, before)
            if self._at > before:
                give(self._chunk[before : self._at])
            if not mark and self._at == len(self._chunk):
                yield from self.more()
            elif mark := (yield from self.match(marks)):
                return mark
            else:
                give(self.tried)

    def copied(self, part: Steps[None]) -> Steps[str]:
        """The text that a part of the program reads, beside what else happens to it. Not within itself."""
        self._copy, self._copy_from = [], self._at
        yield from part
        self._copy.append(self._chunk[self._copy_from : self._at])
        text, self._copy = "".join(self._copy), None
        return text


class MarkSearch:
    """Finds one of several marks in a chunk, or the beginning of one at its end."""

    def __init__(self, marks: tuple[str, ...]) -> None:
        self._whole = re.compile("|".join(map(re.escape, marks)))
        self._beginnings = frozenset(mark[:length] for mark in marks for length in range(1, len(mark)))
        self._longest = max(map(len, marks)) - 1

    def find(self, chunk: str, start: int) -> tuple[str, int]:
        """The mark, "" if none is whole, and where it begins, or may begin; the chunk's length if it does not."""
        if found := self._whole.search(chunk, start):
            return found.group(), found.start()
        end = len(chunk)
        for place in range(max(start, end - self._longest), end):
            if chunk[place:] in self._beginnings:
                return "", place
        return "", end


@cache
def marks_of(marks: tuple[str, ...]) -> MarkSearch:
    return MarkSearch(marks)


@cache
def _characters(characters: str) -> re.Pattern[str]:
    return re.compile(f"[{re.escape(characters)}]")


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Pieces of one sort behind each other as one."""
    result: list[Piece] = []
    texts: list[str] = []
    for piece in pieces:
        if texts and type(piece) is type(result[-1]) and not isinstance(piece, CallBegin):
            texts.append(piece.text)
            continue
        _close(result, texts)
        result.append(piece)
        texts = [] if isinstance(piece, CallBegin) else [piece.text]
    _close(result, texts)
    return result


def _close(result: list[Piece], texts: list[str]) -> None:
    if len(texts) > 1 and not isinstance(last := result[-1], CallBegin):
        result[-1] = type(last)(text="".join(texts))
