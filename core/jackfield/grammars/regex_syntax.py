"""Regular expressions: one dialect, read into a tree that says exactly which texts match.

The dialect is what ECMAScript (with its `u` flag), Python, RE2 and Rust have in common, so that a pattern means the same to
every backend: literals, `.`, classes, `\\d \\w \\s` and their opposites (ASCII, as in ECMAScript), groups, alternatives,
quantifiers, and `^` and `$` at the ends. What only some of them have, or what no automaton can do (looking round, references
back, word boundaries, properties of Unicode, flags), is refused by name. Reading is linear in the pattern.

It does not know in which engine the tree ends; `regex_text` writes it in a form that all engines read alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from jackfield.hookspecs.grammar import GrammarError

MOST_NESTED_GROUPS = 50
MOST_POSITIONS = 20_000
"""How many characters a pattern may come to once its repetitions are written out: what automata are built from."""

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Chars:
    """One character. ranges: code points, both ends in, ascending, apart; no surrogates; at least one."""

    ranges: Ranges


@dataclass(frozen=True)
class Concat:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """`part` at least `least` times, and at most `most` times; None: any number."""

    part: Node
    least: int
    most: int | None


@dataclass(frozen=True)
class Ref:
    """What another rule of the same grammar matches. In grammars only (`ebnf`), never in a pattern."""

    name: str


Node = Chars | Concat | Choice | Repeat | Ref

EVERY: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))
DIGIT: Ranges = ((0x30, 0x39),)
WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACE: Ranges = ((0x09, 0x0D), (0x20, 0x20))
ANYTHING = Repeat(Chars(EVERY), 0, None)
EMPTY = Concat(())
# ECMAScript's white space: what `\S` must leave out; `\s` writes the ASCII part, which every engine agrees on.
_WIDE_SPACE: Ranges = (
    (0x09, 0x0D), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip
# `.` is no line's end of ECMAScript's (\n, \r, U+2028, U+2029), which includes Python's and Rust's (\n).
_LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))


def union(*several: Ranges) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pair for ranges in several for pair in ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    """Every character but these."""
    left: list[tuple[int, int]] = []
    start = 0
    for low, high in (*union(ranges, ((0xD800, 0xDFFF),)), (0x110000, 0x110000)):
        if low > start:
            left.append((start, low - 1))
        start = high + 1
    return tuple(left)


CLASSES: dict[str, Ranges] = {
    "d": DIGIT,
    "D": complement(DIGIT),
    "w": WORD,
    "W": complement(WORD),
    "s": SPACE,
    "S": complement(_WIDE_SPACE),
}
NOT_LINE_END = complement(_LINE_ENDS)


def positions(node: Node) -> int:
    """How many characters the tree comes to with its repetitions written out."""
    if isinstance(node, Chars | Ref):
        return 1
    if isinstance(node, Concat):
        return sum(map(positions, node.parts))
    if isinstance(node, Choice):
        return sum(map(positions, node.options))
    return positions(node.part) * max(1, node.least + 1 if node.most is None else node.most)


def refuse_large(node: Node, where: str) -> None:
    """Raises GrammarError if automata built from the tree could be too large."""
    if (count := positions(node)) > MOST_POSITIONS:
        raise GrammarError(
            f"{where} comes to {count:,} characters once its repetitions are written out; {MOST_POSITIONS:,} are the most",
            keyword=where,
        )


def unbounded(node: Node) -> bool:
    """Whether something in the tree may be repeated without end."""
    if isinstance(node, Repeat):
        return node.most is None or unbounded(node.part)
    parts = node.parts if isinstance(node, Concat) else node.options if isinstance(node, Choice) else ()
    return any(map(unbounded, parts))


def choice(options: list[Node]) -> Node:
    return options[0] if len(options) == 1 else Choice(tuple(options))


def concat(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Concat(tuple(parts))


def literal(text: str) -> Node:
    return concat([Chars(((ord(char), ord(char)),)) for char in text])


def _char_text(code: int) -> str:
    # ASCII marks by number, the same inside a class and outside: no engine takes them for anything else. In braces, as
    # xgrammar reads all hexadecimal digits that follow \x.
    if code < 0x80 and not chr(code).isalnum():
        return f"\\u{{{code:x}}}"
    return chr(code)


def _class_text(ranges: Ranges) -> str:
    def spans(some: Ranges) -> str:
        return "".join(
            _char_text(low) if low == high else f"{_char_text(low)}-{_char_text(high)}" for low, high in some
        )

    other = complement(ranges)
    if len(other) < len(ranges):
        return f"[^{spans(other)}]" if other else "[\\u{0}-\U0010ffff]"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _char_text(ranges[0][0])
    return f"[{spans(ranges)}]"


def regex_text(node: Node) -> str:
    """The tree as a pattern for the whole text, without anchors, in what Rust's regex crate and xgrammar both read:
    literals, classes, `(?:)`, `|`, `*`, `+`, `?`, `{m,n}`."""
    if isinstance(node, Chars):
        return _class_text(node.ranges)
    if isinstance(node, Choice):
        return "(?:" + "|".join(map(regex_text, node.options)) + ")"
    if isinstance(node, Concat):
        return "".join(map(regex_text, node.parts))
    if isinstance(node, Ref):
        raise TypeError(f"the rule {node.name} is no part of a pattern")
    part = regex_text(node.part)
    if not isinstance(node.part, Chars | Choice):
        part = f"(?:{part})"
    if (node.least, node.most) in _SHORT:
        return part + _SHORT[node.least, node.most]
    if node.most == node.least:
        return f"{part}{{{node.least}}}"
    return f"{part}{{{node.least},{'' if node.most is None else node.most}}}"


_SHORT: dict[tuple[int, int | None], str] = {(0, None): "*", (1, None): "+", (0, 1): "?"}
