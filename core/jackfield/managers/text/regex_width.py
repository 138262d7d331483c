"""How short and how long the matches of a regular expression can be, in characters. Knows RE2's syntax, less what looks beyond
a match. It checks no more than it needs for its answer: RE2 has the last word on whether a pattern is one.
"""

from __future__ import annotations

Width = tuple[int, int | None]
"""Fewest and most characters of a match; None: any number."""

MAX_DEPTH = 32
_ONE: Width = (1, 1)
_ASSERTIONS = {"A", "z", "Z", "b", "B"}
_OUTSIDE = {"C": "\\C matches a byte and not a character", "Q": "\\Q is not supported; escape each character"}


class PatternError(ValueError):
    """Why a pattern is not taken."""


def width(pattern: str) -> Width:
    """Raises PatternError."""
    reader = _Reader(pattern)
    found = reader.alternatives(0)
    if reader.at < len(pattern):
        raise PatternError("there is a ) without its (")
    return found


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self.at = 0

    def _peek(self) -> str:
        return self._text[self.at : self.at + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise PatternError("it ends too early")
        self.at += 1
        return char

    def alternatives(self, depth: int) -> Width:
        if depth > MAX_DEPTH:
            raise PatternError(f"groups stand in each other more than {MAX_DEPTH} deep")
        least, most = self._sequence(depth)
        while self._peek() == "|":
            self.at += 1
            other_least, other_most = self._sequence(depth)
            least = min(least, other_least)
            most = None if most is None or other_most is None else max(most, other_most)
        return least, most

    def _sequence(self, depth: int) -> Width:
        least, most = 0, 0
        unbounded = False
        while (char := self._peek()) and char not in "|)":
            part_least, part_most = self._repeated(self._atom(depth))
            least += part_least
            if part_most is None:
                unbounded = True
            else:
                most += part_most
        return least, None if unbounded else most

    def _repeated(self, one: Width) -> Width:
        least, most = one
        while (bounds := self._repetition()) is not None:
            low, high = bounds
            least *= low
            # Nothing repeated without end is nothing.
            most = 0 if most == 0 else None if most is None or high is None else most * high
            if self._peek() == "?":
                self.at += 1
        return least, most

    def _repetition(self) -> Width | None:
        match self._peek():
            case "*":
                bounds: Width = (0, None)
            case "+":
                bounds = (1, None)
            case "?":
                bounds = (0, 1)
            case "{":
                return self._counted()
            case _:
                return None
        self.at += 1
        return bounds

    def _counted(self) -> Width | None:
        """{n}, {n,} or {n,m}; any other brace is a character."""
        end = self._text.find("}", self.at)
        if end < 0:
            return None
        low, comma, high = self._text[self.at + 1 : end].partition(",")
        if not _digits(low) or (high and not _digits(high)):
            return None
        self.at = end + 1
        if not comma:
            return int(low), int(low)
        return int(low), int(high) if high else None

    def _atom(self, depth: int) -> Width:
        char = self._take()
        match char:
            case "(":
                return self._group(depth)
            case "[":
                return self._set()
            case "\\":
                return self._escape()
            case "^" | "$":
                raise PatternError(_beyond(char))
        return _ONE

    def _group(self, depth: int) -> Width:
        if self._peek() == "?":
            self.at += 1
            if self._text.startswith(("P<", "<"), self.at):
                end = self._text.find(">", self.at)
                if end < 0 or self._text.startswith(("<=", "<!"), self.at):
                    raise PatternError("it looks beyond the match with (?<")
                self.at = end + 1
            else:
                while self._peek() and self._peek() in "imsU-":
                    self.at += 1
                match self._take():
                    case ")":
                        return 0, 0  # flags for what follows
                    case ":":
                        pass
                    case other:
                        raise PatternError(f"(?{other} is not supported")
        found = self.alternatives(depth + 1)
        if self._peek() != ")":
            raise PatternError("there is a ( without its )")
        self.at += 1
        return found

    def _set(self) -> Width:
        if self._peek() == "^":
            self.at += 1
        first = True
        while (char := self._take()) != "]" or first:
            first = False
            if char == "\\":
                self._take()  # the rest of a longer escape are characters of the set as far as its end is concerned
            elif char == "[" and self._peek() == ":":
                end = self._text.find(":]", self.at + 1)
                if end >= 0:
                    self.at = end + 2
        return _ONE

    def _escape(self) -> Width:
        char = self._take()
        if char in _ASSERTIONS:
            raise PatternError(_beyond("\\" + char))
        if char in _OUTSIDE:
            raise PatternError(_OUTSIDE[char])
        if char in "pPx" and self._peek() == "{":
            end = self._text.find("}", self.at)
            if end < 0:
                raise PatternError(f"\\{char}{{ has no end")
            self.at = end + 1
        elif char in "pP":
            self._take()
        elif char == "x":
            self._take()
            self._take()
        elif char in "01234567":
            for _ in range(2):
                if self._peek() and self._peek() in "01234567":
                    self.at += 1
        return _ONE


def _digits(text: str) -> bool:
    """A number as RE2 takes one in braces: none with a leading zero, and none so large that it refuses it anyway."""
    return text.isascii() and text.isdigit() and len(text) <= 4 and (text == "0" or text[0] != "0")


def _beyond(what: str) -> str:
    return f"{what} looks at text beyond the match, which may not be there yet; write the characters themselves"
