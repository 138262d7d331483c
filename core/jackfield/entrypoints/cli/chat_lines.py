"""Messages out of lines, and lines out of what a model writes. Knows no terminal and no stream."""

from __future__ import annotations

import re
from collections.abc import Callable

QUOTES = '"""'

_CONTROL = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)")


def harmless(text: str) -> str:
    """Without the characters by which a text could speak to a terminal."""
    return text.translate(_CONTROL)


def read_message(line: Callable[[bool], str]) -> str:
    '''The next message. line: gives the next line without its end, and is told whether it goes on with a message.

    """ begins a message of several lines, and ends it; a line that ends with \\ goes on with the next. Raises EOFError if there
    is no further line; in the middle of a message that is its end.
    '''
    first = line(False)
    parts = []
    if first.lstrip().startswith(QUOTES):
        rest = first.lstrip().removeprefix(QUOTES)
        while not rest.rstrip().endswith(QUOTES):
            parts.append(rest)
            try:
                rest = line(True)
            except EOFError:
                return "\n".join(parts).strip("\n")
        parts.append(rest.rstrip().removesuffix(QUOTES))
        return "\n".join(parts).strip("\n")
    while first.endswith("\\"):
        parts.append(first[:-1])
        try:
            first = line(True)
        except EOFError:
            return "\n".join(parts)
    return "\n".join([*parts, first])


class Blocks:
    """Cuts growing Markdown into blocks that can be rendered one by one, so that what is finished is rendered once.

    A block ends before a line that begins in the first columns after an empty one, outside a code fence, unless it is an item of
    a list: items belong together, and so does what is indented below one.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial: list[str] = []
        self._fence = ""
        self._after_empty = False

    def feed(self, text: str) -> list[str]:
        """The blocks that `text` has finished."""
        *lines, last = text.split("\n")
        done: list[str] = []
        for line in lines:
            self._take("".join([*self._partial, line]), done)
            self._partial.clear()
        if last:
            self._partial.append(last)
        return done

    @property
    def rest(self) -> str:
        """What has not been given yet."""
        return "\n".join([*self._lines, "".join(self._partial)])

    def _take(self, line: str, done: list[str]) -> None:
        if not self._fence and self._after_empty and line[:1] not in ("", " ", "\t") and not _ITEM.match(line):
            done.append("\n".join(self._lines))
            self._lines.clear()
        if (fence := _FENCE.match(line)) is not None:
            mark = fence.group(1)
            if not self._fence:
                self._fence = mark
            elif mark.startswith(self._fence) and not line.strip().strip(mark[0]):
                self._fence = ""
        self._after_empty = not line.strip()
        if self._lines or line.strip():
            self._lines.append(line)
        else:
            self._after_empty = False
