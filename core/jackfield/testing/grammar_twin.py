"""A grammar backend to test the runtime with, and to hold others against: regular expressions by brute force.

A state is a set of places in an automaton over bytes. A mask is made by
trying every token of the vocabulary, so it is slow, and right by construction. Knows the form `regex` alone: literals,
`\\` before any other character, `.`, `[...]` with ranges and `^`, `(...)`, `|`, `?`, `*`, `+`, `{m}`, `{m,n}`; whole match.
`.` and classes are of bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs.grammar import CompiledGrammar, GrammarBackend, GrammarError, GrammarMatcher, GrammarSpec

States = frozenset[int]
_ALL = frozenset(range(256))
_NOT_LINE_END = _ALL - {10}
_CLASSES = {"d": frozenset(b"0123456789"), "s": frozenset(b" \t\n\r\f\v")}
MOST_STATES = 20_000


@dataclass
class Automaton:
    """arrows: from a state by one of some bytes to a state; jumps: without a byte."""

    arrows: list[list[tuple[frozenset[int], int]]] = field(default_factory=list)
    jumps: list[list[int]] = field(default_factory=list)
    end: int = 0

    def new(self) -> int:
        if len(self.arrows) >= MOST_STATES:
            raise GrammarError(f"the pattern needs more than {MOST_STATES} states")
        self.arrows.append([])
        self.jumps.append([])
        return len(self.arrows) - 1

    def closed(self, states: set[int]) -> States:
        """These and all that they reach without a byte."""
        found, left = set(states), list(states)
        while left:
            for there in self.jumps[left.pop()]:
                if there not in found:
                    found.add(there)
                    left.append(there)
        return frozenset(found)

    def after(self, states: States, text: bytes) -> States:
        """Where the bytes lead; empty: nowhere."""
        for byte in text:
            states = self.closed({there for here in states for among, there in self.arrows[here] if byte in among})
            if not states:
                break
        return states


class _Parser:
    """Pattern to automaton, by descent over alternatives, sequences and repeats."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self.automaton = Automaton()

    def whole(self) -> tuple[Automaton, int]:
        start, end = self._either()
        if self._at < len(self._text):
            raise self._wrong("a ) without its (")
        self.automaton.end = end
        return self.automaton, start

    def _wrong(self, what: str) -> GrammarError:
        return GrammarError(f"{what}, at character {self._at}", keyword=self._text[self._at : self._at + 8])

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _either(self) -> tuple[int, int]:
        parts = [self._sequence()]
        while self._next() == "|":
            self._at += 1
            parts.append(self._sequence())
        if len(parts) == 1:
            return parts[0]
        start, end = self.automaton.new(), self.automaton.new()
        for first, last in parts:
            self.automaton.jumps[start].append(first)
            self.automaton.jumps[last].append(end)
        return start, end

    def _sequence(self) -> tuple[int, int]:
        start = end = self.automaton.new()
        while self._next() not in ("", "|", ")"):
            first, last = self._repeated()
            self.automaton.jumps[end].append(first)
            end = last
        return start, end

    def _repeated(self) -> tuple[int, int]:
        begin = self._at
        piece = self._atom()
        source = self._text[begin : self._at]
        low, high = self._counts()
        if (low, high) == (1, 1):
            return piece
        start = end = self.automaton.new()
        copies = [piece] + [self._again(source) for _ in range(max(low, high or 1) - 1)]
        skips = []
        for i, (first, last) in enumerate(copies):
            if i >= low:
                skips.append(end)
            self.automaton.jumps[end].append(first)
            end = last
            if high is None and i == len(copies) - 1:
                self.automaton.jumps[last].append(first)
        out = self.automaton.new()
        for here in (end, *skips):
            self.automaton.jumps[here].append(out)
        return start, out

    def _again(self, source: str) -> tuple[int, int]:
        """The same piece once more, with states of its own."""
        text, at = self._text, self._at
        self._text, self._at = source, 0
        found = self._atom()
        self._text, self._at = text, at
        return found

    def _counts(self) -> tuple[int, int | None]:
        sign = self._next()
        if sign in ("?", "*", "+"):
            self._at += 1
            return {"?": (0, 1), "*": (0, None), "+": (1, None)}[sign]
        if sign != "{":
            return 1, 1
        close = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : close].partition(",")
        if close < 0 or not low.isdigit() or (high and not high.isdigit()):
            raise self._wrong("a { that is no {m} or {m,n}")
        self._at = close + 1
        least, most = int(low), int(high) if high else (None if comma else int(low))
        if most == 0 or (most is not None and most < least):
            raise self._wrong(f"a repeat of {least} to {most}")
        return least, most

    def _atom(self) -> tuple[int, int]:
        character = self._next()
        if character == "(":
            self._at += 1
            found = self._either()
            if self._next() != ")":
                raise self._wrong("a ( without its )")
            self._at += 1
            return found
        if character in ("", "?", "*", "+", "{", "]", "}", "^", "$"):
            raise self._wrong(f"a {character!r} that says nothing here")
        if character == "[":
            return self._arrow(self._class())
        self._at += 1
        if character == ".":
            return self._arrow(_NOT_LINE_END)
        if character == "\\":
            character = self._next()
            self._at += 1
            if character in _CLASSES:
                return self._arrow(_CLASSES[character])
        start = end = self.automaton.new()
        for byte in character.encode():
            there = self.automaton.new()
            self.automaton.arrows[end].append((frozenset([byte]), there))
            end = there
        return start, end

    def _arrow(self, among: frozenset[int]) -> tuple[int, int]:
        start, end = self.automaton.new(), self.automaton.new()
        self.automaton.arrows[start].append((among, end))
        return start, end

    def _class(self) -> frozenset[int]:
        close = self._text.find("]", self._at + 2)
        inside = self._text[self._at + 1 : close]
        if close < 0 or not inside.isascii():
            raise self._wrong("a [ without its ], or with characters beyond ASCII in it")
        self._at = close + 1
        negated = inside.startswith("^")
        found: set[int] = set()
        at = int(negated)
        while at < len(inside):
            if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
                found.update(range(ord(inside[at]), ord(inside[at + 2]) + 1))
                at += 3
            else:
                found.add(ord(inside[at]))
                at += 1
        return _ALL - found if negated else frozenset(found)


class TwinMatcher(GrammarMatcher):
    def __init__(self, grammar: TwinGrammar) -> None:
        self._grammar = grammar
        self._states = [grammar.automaton.closed({grammar.start})]

    def fill(self, mask: NDArray[np.uint32]) -> None:
        mask[:] = self._grammar.mask(self._states[-1])

    def accept(self, token: int) -> bool:
        text = self._grammar.vocab[token]
        states = self._grammar.automaton.after(self._states[-1], text) if text else frozenset()
        if states:
            self._states.append(states)
        return bool(states)

    @property
    def terminated(self) -> bool:
        return self._grammar.ended(self._states[-1])

    def rollback(self, count: int) -> None:
        del self._states[len(self._states) - count :]


class TwinGrammar(CompiledGrammar):
    def __init__(self, pattern: str, vocab: Sequence[bytes], stop_ids: Sequence[int]) -> None:
        self.automaton, self.start = _Parser(pattern).whole()
        self.nbytes = 64 * len(self.automaton.arrows)
        self.vocab = vocab
        self._stop_ids = stop_ids
        self._masks: dict[States, NDArray[np.uint32]] = {}

    def matcher(self) -> TwinMatcher:
        return TwinMatcher(self)

    def ended(self, states: States) -> bool:
        """Complete, and no byte may follow."""
        return self.automaton.end in states and not any(self.automaton.arrows[state] for state in states)

    def mask(self, states: States) -> NDArray[np.uint32]:
        known = self._masks.get(states)
        if known is None:
            allowed = np.zeros(-(-len(self.vocab) // 32) * 32, dtype=np.bool_)
            for token, text in enumerate(self.vocab):
                allowed[token] = bool(text) and bool(self.automaton.after(states, text))
            allowed[list(self._stop_ids)] = self.automaton.end in states
            known = self._masks[states] = np.packbits(allowed, bitorder="little").view(np.uint32)
        return known


class TwinBackend(GrammarBackend):
    """Its format: the pattern in JSON. Only for small vocabularies."""

    def __init__(self, vocab: Callable[[], Sequence[bytes]], stop_ids: Sequence[int]) -> None:
        self._vocab = vocab
        self._stop_ids = tuple(stop_ids)
        self._known: Sequence[bytes] | None = None

    def check(self, spec: GrammarSpec) -> None:
        if spec.form != "regex":
            raise GrammarError(f"this backend knows no {spec.form}, only regex")

    def compile(self, spec: GrammarSpec) -> bytes:
        self.check(spec)
        _Parser(spec.source).whole()
        return json.dumps(spec.source).encode()

    def load(self, compiled: bytes) -> TwinGrammar:
        if self._known is None:
            self._known = self._vocab()
        return TwinGrammar(json.loads(compiled), self._known, self._stop_ids)
