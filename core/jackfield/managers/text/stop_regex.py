"""Stop expressions: which patterns are taken, how long a match can be, and where the first one ends.

Matched by RE2, whose time is linear in the text whatever the pattern: patterns come from clients, and the text from a model
that they steer. RE2 cannot say how much of a text may still become a match, so what is held back is the longest match less
one character; that length is read from the pattern, and a pattern without such a bound is refused.

No assertions (^ $ \\A \\z \\b \\B): they look at text before or after the match, and what comes after is not there yet.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from jackfield.managers.text.regex_width import PatternError, width

_REMEMBERED = 64
"""Compiled patterns, twice what one request may bring by default."""

_MEMORY = 2 * 2**20
"""Bytes that RE2 may spend on one pattern; beyond them it refuses the pattern, or matches without its table of states."""


class StopRegex:
    """A pattern that was taken. longest: characters of its longest match, and with it the most text that a stream holds back.
    work: steps of matching for a token of the answer: the characters of the longest match, which are looked at again with each
    token, times the length of its program. RE2 takes that many when a pattern has too many states for its table. Raises
    PatternError, which says why not."""

    __slots__ = ("_search", "longest", "pattern", "work")

    def __init__(self, pattern: str) -> None:
        least, most = width(pattern)
        if most is None:
            raise PatternError("it matches texts of any length; give the repetition a bound, such as {0,40}")
        if least == 0:
            raise PatternError("it matches the empty text, which would end every answer at once")
        self.pattern = pattern
        self.longest = most
        compiled = _compile(pattern)
        self.work = most * compiled.programsize
        self._search = compiled.search

    def first_match(self, text: str) -> tuple[int, int] | None:
        """Start and end of the match that ends first; of those that end there, the one that starts first."""
        if self._search(text) is None:
            return None
        # Whether the first `end` characters hold a match can only change once, from no to yes.
        low, high = 0, len(text)
        while low + 1 < high:
            middle = (low + high) // 2
            if self._search(text[:middle]) is None:
                low = middle
            else:
                high = middle
        found = self._search(text[:high])
        assert found is not None
        return found.start(), high


def check_match_length(pattern: str, most: int) -> None:
    """Before it is compiled. Raises PatternError."""
    _, longest = width(pattern)
    if longest is not None and longest > most:
        raise PatternError(
            f"it matches up to {longest} characters; at most {most} are allowed (--max-stop-regex-match)"
        )


def check_work(regexes: Sequence[StopRegex], most: int) -> None:
    """Of one request. Raises PatternError."""
    work = sum(regex.work for regex in regexes)
    if work > most:
        raise PatternError(
            f"it would take up to {work} steps of matching a token; at most {most} are allowed (--max-stop-regex-work). Bound "
            "what it repeats, such as .{0,40}, closer, or give fewer patterns"
        )


def stop_regexes(patterns: Iterable[str]) -> list[StopRegex]:
    """For patterns that were checked before."""
    return [made_once(pattern) for pattern in patterns]


@functools.lru_cache(maxsize=_REMEMBERED)
def made_once(pattern: str) -> StopRegex:
    """As `StopRegex(pattern)`. To make one may take 20 ms, and a small body may name it for a thousand prompts."""
    return StopRegex(pattern)


def _compile(pattern: str) -> Any:
    import re2  # only for those who send a pattern

    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else error
        raise PatternError(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)) from error
