"""How a streamed answer looks on a terminal: as plain text, or as Markdown that is rendered while it grows."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.text import Text

from jackfield.entrypoints.cli.chat_backend import End, Piece
from jackfield.entrypoints.cli.chat_lines import Blocks, harmless

REFRESH_SECONDS = 0.1
"""Least time between two renderings of what is still growing."""


class View(Protocol):
    def show(self, pieces: Iterable[Piece | End]) -> None:
        """Show an answer as it comes. What came is on the screen when this returns or raises."""
        ...

    def say(self, text: str, *, error: bool = False) -> None:
        """Something that is not the model's."""
        ...


class PlainView:
    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, pieces: Iterable[Piece | End]) -> None:
        out = self._console.file
        try:
            for piece in pieces:
                if isinstance(piece, Piece):
                    out.write(harmless(piece.text))
                    out.flush()
        finally:
            out.write("\n")
            out.flush()

    def say(self, text: str, *, error: bool = False) -> None:
        self._console.file.write(harmless(text) + "\n")
        self._console.file.flush()


class MarkdownView:
    """Finished blocks are printed for good; the last one is drawn again as it grows, its end at the bottom of the screen."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._blank = False

    def show(self, pieces: Iterable[Piece | End]) -> None:
        self._blank = False
        blocks, reasoning, drawn = Blocks(), False, 0.0
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            try:
                for piece in pieces:
                    if isinstance(piece, End):
                        continue
                    if piece.reasoning is not reasoning:
                        self._print(blocks.rest, reasoning)
                        blocks, reasoning = Blocks(), piece.reasoning
                    for block in blocks.feed(harmless(piece.text)):
                        self._print(block, reasoning)
                    if (now := time.monotonic()) - drawn >= REFRESH_SECONDS:
                        drawn = now
                        live.update(_Bottom(_rendered(blocks.rest, reasoning)), refresh=True)
            finally:
                live.update("", refresh=True)
                self._print(blocks.rest, reasoning)

    def say(self, text: str, *, error: bool = False) -> None:
        self._console.print(Text(harmless(text), style="red" if error else "dim"))

    def _print(self, block: str, reasoning: bool) -> None:
        if block.strip():
            if self._blank:
                self._console.print()
            self._console.print(_rendered(block.rstrip(), reasoning))
            self._blank = True


def _rendered(text: str, reasoning: bool) -> RenderableType:
    return Text(text, style="dim italic") if reasoning else Markdown(text, hyperlinks=False)


class _Bottom:
    """The last lines of something, as many as the screen has."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._inner, options, pad=False)
        for line in lines[-max(1, console.height - 1) :]:
            yield from line
            yield Segment.line()
