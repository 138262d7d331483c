"""Reads a pattern into the tree of `regex_syntax`. A hand-written state machine: it goes through the pattern once."""

from __future__ import annotations

from dataclasses import dataclass

from jackfield.grammars.regex_syntax import (
    ANYTHING,
    CLASSES,
    MOST_NESTED_GROUPS,
    NOT_LINE_END,
    Chars,
    Concat,
    Node,
    Ranges,
    Repeat,
    choice,
    complement,
    concat,
    refuse_large,
    union,
)
from jackfield.hookspecs.grammar import GrammarError

_CONTROLS = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D, "0": 0x00}
_NOT_REGULAR = {
    "b": "a word boundary", "B": "a word boundary", "A": "an anchor; write ^", "Z": "an anchor; write $",
    "z": "an anchor; write $", "p": "a property of Unicode; write the class out",
    "P": "a property of Unicode; write the class out", "k": "a reference back", "c": "a control character; write \\xHH",
}  # fmt: skip
_GROUPS = {"?=": "looks ahead", "?!": "looks ahead", "?<=": "looks behind", "?<!": "looks behind"}


@dataclass(frozen=True)
class _Anchor:
    mark: str  # "^" or "$"
    at: int


def read_regex(pattern: str, *, where: str = "the regular expression", search: bool = False) -> Node:
    """The texts that match as a whole; with `search` (JSON Schema's `pattern`), those in which something matches.

    where: how messages name the pattern. Raises GrammarError that names the place in it.
    """
    node = _Reader(pattern, where, search).read()
    refuse_large(node, where)
    return node


class _Reader:
    def __init__(self, pattern: str, where: str, search: bool) -> None:
        self.pattern, self.where, self.search = pattern, where, search
        self.at = 0

    def error(self, what: str, at: int | None = None) -> GrammarError:
        place = self.at if at is None else at
        return GrammarError(f"{self.where}, character {place + 1}: {what}", keyword=self.where)

    def peek(self, length: int = 1) -> str:
        return self.pattern[self.at : self.at + length]

    def read(self) -> Node:
        options = self.alternatives(0)
        if self.at < len(self.pattern):
            raise self.error("`)` closes no group")
        return choice([self.whole(option) for option in options])

    def whole(self, parts: list[Node | _Anchor]) -> Node:
        """One alternative at the top: takes its anchors off, and fills in what they leave open."""
        inner = parts
        starts = bool(inner) and isinstance(inner[0], _Anchor) and inner[0].mark == "^"
        inner = inner[1:] if starts else inner
        ends = bool(inner) and isinstance(inner[-1], _Anchor) and inner[-1].mark == "$"
        inner = inner[:-1] if ends else inner
        plain: list[Node] = []
        for part in inner:
            if isinstance(part, _Anchor):
                raise self.error(f"`{part.mark}` stands only at an end of the pattern or of an alternative", part.at)
            plain.append(part)
        if not self.search:
            return concat(plain)
        return concat([*([] if starts else [ANYTHING]), *plain, *([] if ends else [ANYTHING])])

    def alternatives(self, depth: int) -> list[list[Node | _Anchor]]:
        if depth > MOST_NESTED_GROUPS:
            raise self.error(f"groups are nested more than {MOST_NESTED_GROUPS} deep")
        options: list[list[Node | _Anchor]] = [[]]
        while (char := self.peek()) and char != ")":
            if char == "|":
                self.at += 1
                options.append([])
            elif char in "^$":
                options[-1].append(_Anchor(char, self.at))
                self.at += 1
            else:
                options[-1].append(self.quantified(self.atom(depth)))
        return options

    def atom(self, depth: int) -> Node:
        char = self.peek()
        if char == "(":
            return self.group(depth)
        if char == "[":
            return Chars(self.char_class())
        if char == "\\":
            return Chars(self.escape(in_class=False))
        if char in "*+?":
            raise self.error(f"`{char}` repeats nothing")
        if char in "{}]":
            raise self.error(f"`{char}` as it stands means different things to different engines; write `\\{char}`")
        self.at += 1
        if char == ".":
            return Chars(NOT_LINE_END)
        if 0xD800 <= ord(char) <= 0xDFFF:
            raise self.error("half a surrogate pair is no character", self.at - 1)
        return Chars(((ord(char), ord(char)),))

    def group(self, depth: int) -> Node:
        start = self.at
        self.at += 1
        for mark, what in _GROUPS.items():
            if self.peek(len(mark)) == mark:
                raise self.error(f"`({mark}` {what}, which no automaton can", start)
        if self.peek(2) == "?:":
            self.at += 2
        elif self.peek(2) in ("?<", "?P"):
            close = self.pattern.find(">", self.at)
            head = self.pattern[self.at : close]
            name = head.removeprefix("?P").removeprefix("?").removeprefix("<")
            if close < 0 or not name.isidentifier() or "<" not in head:
                raise self.error("a group whose name is not `(?<name>`", start)
            self.at = close + 1
        elif self.peek() == "?":
            raise self.error("flags and other marks behind `(?` are not read", start)
        options = self.alternatives(depth + 1)
        if self.peek() != ")":
            raise self.error("this group is not closed", start)
        self.at += 1
        plain: list[Node] = []
        for option in options:
            for part in option:
                if isinstance(part, _Anchor):
                    raise self.error(f"`{part.mark}` inside a group; write it at the ends of the pattern", part.at)
            plain.append(concat([part for part in option if not isinstance(part, _Anchor)]))
        return choice(plain)

    def quantified(self, node: Node) -> Node:
        char, start = self.peek(), self.at
        if not char or char not in "*+?{":
            return node
        self.at += 1
        if char == "{":
            least, most = self.counts(start)
        else:
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        if self.peek() == "?":  # reluctant: the same texts
            self.at += 1
        if self.peek() and self.peek() in "*+?{":
            raise self.error("a repetition of a repetition; put the inner one into a group")
        if most == 0:
            return Concat(())
        return Repeat(node, least, most)

    def counts(self, start: int) -> tuple[int, int | None]:
        close = self.pattern.find("}", self.at)
        first, comma, second = self.pattern[self.at : close].partition(",")
        numbers = [first, *([second] if second else [])]
        if close < 0 or not all(len(part) <= 9 and part.isascii() and part.isdigit() for part in numbers):
            raise self.error(
                "`{` begins no repetition such as {2}, {2,} or {2,5}; write `\\{` for the character", start
            )
        self.at = close + 1
        least = int(first)
        most = int(second) if second else (None if comma else least)
        if most is not None and most < least:
            raise self.error(f"{{{least},{most}}} asks for more than it allows", start)
        return least, most

    def escape(self, *, in_class: bool) -> Ranges:
        start = self.at
        self.at += 1
        char = self.peek()
        self.at += 1
        if not char:
            raise self.error("`\\` ends the pattern", start)
        if char in CLASSES:
            return CLASSES[char]
        if char in _CONTROLS:
            if char == "0" and self.peek().isdigit():
                raise self.error("octal numbers are not read; write \\xHH", start)
            return ((_CONTROLS[char], _CONTROLS[char]),)
        if char in "xu":
            code = self.code_point(char, start)
            return ((code, code),)
        if char == "b" and in_class:
            return ((0x08, 0x08),)
        if char in _NOT_REGULAR:
            raise self.error(f"`\\{char}` is {_NOT_REGULAR[char]}", start)
        if char.isdigit():
            raise self.error(f"`\\{char}` is a reference back, which no automaton can follow", start)
        if not char.isascii() or char.isalnum():
            raise self.error(f"`\\{char}` means nothing that all engines agree on", start)
        return ((ord(char), ord(char)),)

    def code_point(self, kind: str, start: int) -> int:
        if kind == "u" and self.peek() == "{":
            close = self.pattern.find("}", self.at)
            code = _hexadecimal(self.pattern[self.at + 1 : max(close, 0)], 1, 6)
            self.at = close + 1
        else:
            width = 2 if kind == "x" else 4
            code = _hexadecimal(self.peek(width), width, width)
            self.at += width
        if code is None:
            raise self.error(f"`\\{kind}` is not followed by a hexadecimal number", start)
        if 0xD800 <= code <= 0xDBFF and self.peek(2) == "\\u":
            low = _hexadecimal(self.peek(6)[2:], 4, 4)
            if low is not None and 0xDC00 <= low <= 0xDFFF:
                self.at += 6
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise self.error(f"U+{code:04X} is no character", start)
        return code

    def char_class(self) -> Ranges:
        start = self.at
        self.at += 1
        negated = self.peek() == "^"
        self.at += negated
        found: list[Ranges] = []
        while (char := self.peek()) != "]":
            if not char:
                raise self.error("this class is not closed", start)
            low = self.class_member()
            if self.peek() == "-" and self.peek(2)[1:] not in ("]", ""):
                place = self.at
                self.at += 1
                high = self.class_member()
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or high[0][0] != high[0][1]:
                    raise self.error("a class such as \\d at an end of a range", place)
                if high[0][0] < low[0][0]:
                    raise self.error("a range whose end comes before its beginning", place)
                # ranges across the surrogates leave them out
                low = complement(complement(((low[0][0], high[0][0]),)))
            found.append(low)
        self.at += 1
        if not found and not negated:
            raise self.error("an empty class fits nothing", start)
        ranges = complement(union(*found)) if negated else union(*found)
        if not ranges:
            raise self.error("this class fits no character", start)
        return ranges

    def class_member(self) -> Ranges:
        char = self.peek()
        if char == "\\":
            return self.escape(in_class=True)
        if char == "[":
            raise self.error("`[` inside a class means different things to different engines; write `\\[`")
        self.at += 1
        if 0xD800 <= ord(char) <= 0xDFFF:
            raise self.error("half a surrogate pair is no character", self.at - 1)
        return ((ord(char), ord(char)),)


def _hexadecimal(digits: str, least: int, most: int) -> int | None:
    if not least <= len(digits) <= most or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
        return None
    return int(digits, 16)
