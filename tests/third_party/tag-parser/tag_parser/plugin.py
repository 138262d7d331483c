"""Parser `tag`. Reasoning stands at the beginning of an answer or nowhere; what follows is left to others."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.hookspecs import Content, Parser, ParserContext, Piece, Reasoning, ReasoningParser, TextStream, hookimpl
from tag_parser.options import TagOptions


class TagParser(ReasoningParser):
    def __init__(self, word: str) -> None:
        self.start, self.end = f"<{word}>", f"</{word}>"

    def opened(self, prompt_end: str) -> bool:
        return prompt_end.rstrip().endswith(self.start)

    def stream(self, *, opened: bool) -> TextStream:
        return TagStream(self.start, self.end, opened)


class TagStream(TextStream):
    """Holds back what may be a part of the tag that comes next, and nothing else."""

    def __init__(self, start: str, end: str, opened: bool) -> None:
        self._start, self._end = start, end
        self._kind: type[Reasoning | Content] | None = Reasoning if opened else None
        self._held = ""

    def feed(self, text: str) -> Sequence[Piece]:
        text, self._held = self._held + text, ""
        pieces: list[Piece] = []
        if self._kind is None:
            if text.startswith(self._start):
                self._kind, text = Reasoning, text.removeprefix(self._start)
            elif self._start.startswith(text):
                self._held = text
                return pieces
            else:
                self._kind = Content
        if self._kind is Reasoning:
            reasoning, found, rest = text.partition(self._end)
            if not found:
                reasoning, self._held = self._parted(reasoning)
            if reasoning:
                pieces.append(Reasoning(text=reasoning))
            self._kind, text = (Content, rest) if found else (Reasoning, "")
        return [*pieces, Content(text=text)] if text else pieces

    def _parted(self, text: str) -> tuple[str, str]:
        """The text, and the longest end of it with which the closing tag may begin."""
        sizes = range(min(len(text), len(self._end) - 1), 0, -1)
        size = next((size for size in sizes if text.endswith(self._end[:size])), 0)
        return text[: len(text) - size], text[len(text) - size :]

    def finish(self) -> Sequence[Piece]:
        return [(self._kind or Content)(text=self._held)] if self._held else []


@hookimpl
def jackfield_parser(context: ParserContext) -> Parser:
    if not isinstance(context.options, TagOptions):
        raise TypeError(f"options of another plugin: {context.options!r}")
    return TagParser(context.options.word)
