"""Reasoning between two tags, as a state machine over the text of one answer. Knows no model and no template.

What the model wrote is kept, but for the tags and the whitespace behind each of them.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from jackfield.hookspecs import Content, Piece, Reasoning, ReasoningParser, TextStream

TURN_MARKS = ("<|", "<｜", "[INST]", "[/INST]", "<start_of_turn>", "<end_of_turn>", "</s>")
"""A tag with one of these behind it stands in an earlier turn, where a user may have written it."""


class _State(enum.Enum):
    """START: nothing but whitespace so far, and perhaps the beginning of the opening tag. INSIDE: in the reasoning. BARE: in the
    answer, with no reasoning before it. AFTER: behind the reasoning, where nothing is looked for any more."""

    START = enum.auto()
    INSIDE = enum.auto()
    BARE = enum.auto()
    AFTER = enum.auto()


class TagStream(TextStream):
    """opened: the text begins inside the reasoning. The opening tag counts at the beginning alone, where the model may repeat
    what the prompt has; an end without a beginning is left out, and what stood before it has been content."""

    def __init__(self, start: str, end: str, *, opened: bool) -> None:
        self._start = start
        self._end = end
        self._opened = opened
        self._state = _State.START
        self._trims = False
        self._held = ""
        self._space: list[str] = []  # before all else, apart from what is held, so that a long run is read once

    def feed(self, text: str) -> Sequence[Piece]:
        pieces: list[Piece] = []
        text = self._held + text
        self._held = ""
        if self._state is _State.START:
            text = self._begin(text)
        if self._state in (_State.INSIDE, _State.BARE):
            text = self._until_end(text, pieces)
        if self._state is _State.AFTER:
            self._give(text, pieces)
        return pieces

    def finish(self) -> Sequence[Piece]:
        pieces: list[Piece] = []
        text, self._held = self._held, ""
        if self._state is _State.START:
            text = self._leave_start(text)
        self._give(text, pieces)
        return pieces

    def _begin(self, text: str) -> str:
        """The rest of the text, if it is known by now where it begins; else all of it is held back."""
        bare = text.lstrip()
        if bare.startswith(self._start):
            self._state, self._trims = _State.INSIDE, True
            return bare[len(self._start) :]
        self._space.append(text[: len(text) - len(bare)])
        if self._start.startswith(bare):
            self._held = bare
            return ""
        return self._leave_start(bare)

    def _leave_start(self, text: str) -> str:
        """There is no opening tag. Returns all of the text so far."""
        self._state = _State.INSIDE if self._opened else _State.BARE
        self._trims = self._opened
        return "".join([*self._space, text])

    def _until_end(self, text: str, pieces: list[Piece]) -> str:
        place = text.find(self._end)
        if place < 0:
            kept = len(text) - _beginning_at_end(text, self._end)
            self._held = text[kept:]
            self._give(text[:kept], pieces)
            return ""
        self._give(text[:place], pieces)
        self._state, self._trims = _State.AFTER, True
        return text[place + len(self._end) :]

    def _give(self, text: str, pieces: list[Piece]) -> None:
        if self._trims:
            text = text.lstrip()
            self._trims = not text
        if text:
            pieces.append(Reasoning(text=text) if self._state is _State.INSIDE else Content(text=text))


class TagParser(ReasoningParser):
    """always: every answer begins inside the reasoning. template: the chat template, in which the switches are looked for."""

    def __init__(
        self, start: str, end: str, *, always: bool = False, special: bool = False, template: str = ""
    ) -> None:
        self.start = start
        self.end = end
        self.always = always
        self.keeps_special_tokens = special
        self.template_switch = tuple(name for name in ("enable_thinking", "thinking") if _has_word(template, name))

    def opened(self, prompt_end: str) -> bool:
        if self.always:
            return True
        _, tag, behind = prompt_end.rpartition(self.start)
        return bool(tag) and self.end not in behind and not any(mark in behind for mark in TURN_MARKS)

    def stream(self, *, opened: bool) -> TextStream:
        return TagStream(self.start, self.end, opened=opened)


def _beginning_at_end(text: str, tag: str) -> int:
    """How many characters at the end of the text may be the beginning of the tag. The whole tag is not in the text."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return length
    return 0


def _has_word(text: str, word: str) -> bool:
    """Whether it stands there on its own: "thinking" is no part of "enable_thinking"."""
    place = text.find(word)
    while place >= 0:
        before, behind = text[place - 1 : place], text[place + len(word) : place + len(word) + 1]
        if not any(side.isalnum() or side == "_" for side in (before, behind)):
            return True
        place = text.find(word, place + 1)
    return False
