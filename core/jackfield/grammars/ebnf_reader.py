"""Reads EBNF in the dialect of llama.cpp's GBNF, as xgrammar reads it too. A state machine that goes through the text once.

    root   ::= "answer: " item ("," item)*      # a comment
    item   ::= [a-z] [a-z0-9_]{0,15} | "\\u65e5" | "(" item ")"

A rule is a name, `::=` and alternatives separated by `|`; `root` is the whole answer. Terms are literals in double quotes,
classes, `.` (any character), names of rules and groups in parentheses, each with `*`, `+`, `?`, `{m}`, `{m,}` or `{m,n}` behind
it. Escapes: `\\n \\r \\t`, `\\xHH`, `\\uHHHH`, `\\UHHHHHHHH`, and `\\` before a mark for the mark itself. A rule may go on in
further lines; the next one begins where a name is followed by `::=`.
"""

from __future__ import annotations

import re

from jackfield.grammars.regex_syntax import (
    EVERY,
    Chars,
    Node,
    Ranges,
    Ref,
    Repeat,
    choice,
    complement,
    concat,
    literal,
    union,
)
from jackfield.hookspecs.grammar import GrammarError

MOST_DEPTH = 50
MOST_COUNT = 100_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_HEAD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*[ \t]*::=")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_COUNTS = re.compile(r"\{[ \t]*([0-9]{1,7})[ \t]*(?:(,)[ \t]*([0-9]{1,7})?[ \t]*)?\}")
_CONTROLS = {"n": 0x0A, "r": 0x0D, "t": 0x09}
_DIGITS = {"x": 2, "u": 4, "U": 8}


class EbnfReader:
    """references: each name that a rule refers to, with its place in the source."""

    def __init__(self, source: str, where: str) -> None:
        self.source, self.where = source, where
        self.at = 0
        self.references: list[tuple[str, int]] = []

    def error(self, what: str, at: int | None = None) -> GrammarError:
        place = self.at if at is None else at
        line = self.source.count("\n", 0, place) + 1
        column = place - self.source.rfind("\n", 0, place)
        return GrammarError(
            f"{self.where}, line {line}, column {column}: {what}", keyword=f"line {line}, column {column}"
        )

    def peek(self) -> str:
        return self.source[self.at : self.at + 1]

    def space(self) -> None:
        found = _SPACE.match(self.source, self.at)
        self.at = found.end() if found else self.at

    def read(self) -> dict[str, Node]:
        rules: dict[str, Node] = {}
        self.space()
        while self.at < len(self.source):
            start = self.at
            head = _HEAD.match(self.source, self.at)
            if head is None:
                raise self.error("a rule begins with a name and `::=`")
            name = head.group()[:-3].rstrip()
            if name in rules:
                raise self.error(f"the rule {name!r} is there already", start)
            self.at = head.end()
            rules[name] = self.alternatives(0)
            if self.peek() == ")":
                raise self.error("`)` closes no group")
        return rules

    def alternatives(self, depth: int) -> Node:
        if depth > MOST_DEPTH:
            raise self.error(f"groups are nested more than {MOST_DEPTH} deep")
        options: list[list[Node]] = [[]]
        while True:
            self.space()
            char = self.peek()
            if not char or char == ")" or _HEAD.match(self.source, self.at):
                return choice([concat(parts) for parts in options])
            if char == "|":
                self.at += 1
                options.append([])
            else:
                options[-1].append(self.repeated(self.term(depth)))

    def term(self, depth: int) -> Node:
        char, start = self.peek(), self.at
        if char == '"':
            return self.quoted()
        if char == "[":
            return Chars(self.char_class())
        if char == ".":
            self.at += 1
            return Chars(EVERY)
        if char == "(":
            self.at += 1
            node = self.alternatives(depth + 1)
            if self.peek() != ")":
                raise self.error("this group is not closed", start)
            self.at += 1
            return node
        if name := _NAME.match(self.source, self.at):
            self.at = name.end()
            self.references.append((name.group(), start))
            return Ref(name.group())
        raise self.error(f"{char!r} begins no term: a literal in double quotes, a class, a group or the name of a rule")

    def repeated(self, node: Node) -> Node:
        while (char := self.peek()) and char in "*+?{":
            if char == "{":
                found = _COUNTS.match(self.source, self.at)
                if found is None:
                    raise self.error("`{` begins no repetition such as {2}, {2,} or {2,5}")
                least = int(found[1])
                most = int(found[3]) if found[3] else (None if found[2] else least)
                if max(least, most or 0) > MOST_COUNT or (most is not None and most < least):
                    raise self.error(f"{found.group()} is no repetition of up to {MOST_COUNT:,}")
                self.at = found.end()
                node = concat([]) if most == 0 else Repeat(node, least, most)
            else:
                self.at += 1
                node = Repeat(node, char == "+", 1 if char == "?" else None)
        return node

    def quoted(self) -> Node:
        start = self.at
        self.at += 1
        text: list[str] = []
        while (char := self.peek()) != '"':
            if not char or char in "\r\n":
                raise self.error("this literal is not closed on its line", start)
            text.append(chr(self.character()))
        self.at += 1
        return literal("".join(text))

    def character(self) -> int:
        """One character of a literal or a class, escaped or not."""
        start, char = self.at, self.peek()
        self.at += 1
        if char != "\\":
            code = ord(char)
        else:
            char = self.peek()
            self.at += 1
            if char in _DIGITS:
                digits = self.source[self.at : self.at + _DIGITS[char]]
                if len(digits) < _DIGITS[char] or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                    raise self.error(f"`\\{char}` is followed by {_DIGITS[char]} hexadecimal digits", start)
                self.at += _DIGITS[char]
                code = int(digits, 16)
            elif char in _CONTROLS:
                code = _CONTROLS[char]
            elif char and char.isascii() and not char.isalnum() and char.isprintable():
                code = ord(char)
            else:
                raise self.error(f"`\\{char}` is no escape", start)
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
            if not char or char in "\r\n":
                raise self.error("this class is not closed on its line", start)
            place = self.at
            low = high = self.character()
            if self.peek() == "-" and self.source[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.character()
            if high < low:
                raise self.error("a range whose end comes before its beginning", place)
            found.append(complement(complement(((low, high),))))
        self.at += 1
        ranges = complement(union(*found)) if negated else union(*found)
        if not ranges:
            raise self.error("this class fits no character", start)
        return ranges
