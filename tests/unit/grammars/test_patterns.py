"""Patterns on the backends: random ones let the texts pass that Python's `re` matches, and no others."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from jackfield.hookspecs import GrammarBackend, GrammarError, GrammarMatcher
from tests.unit.grammars.backends import complete, grammar, takes

MOST = 4
TEXTS = ["".join(text) for length in range(MOST + 1) for text in itertools.product("abc", repeat=length)]


def pattern(dice: random.Random, depth: int) -> str:
    kind = dice.random()
    if depth == 0 or kind < 0.3:
        return dice.choice(["a", "b", "c", "[ab]", "[^a]"])
    if kind < 0.55:
        return "".join(pattern(dice, depth - 1) for _ in range(dice.randint(1, 3)))
    if kind < 0.75:
        return f"(?:{pattern(dice, depth - 1)}|{pattern(dice, depth - 1)})"
    return f"(?:{pattern(dice, depth - 1)}){dice.choice(['*', '+', '?', '{2}', '{1,2}', '{0,2}', '{2,}'])}"


def passing(matcher: GrammarMatcher, closed: bytes, so_far: str = "") -> set[str]:
    """The texts of up to MOST characters behind which the answer may end, or the closing mark may stand."""
    found: set[str] = set()
    if not closed:
        found |= {so_far} if complete(matcher) else set()
    elif matcher.accept(closed[0]):
        found.add(so_far)
        matcher.rollback(1)
    for char in "abc" if len(so_far) < MOST and not matcher.terminated else "":
        if matcher.accept(ord(char)):
            found |= passing(matcher, closed, so_far + char)
            matcher.rollback(1)
    return found


@pytest.mark.parametrize("number", range(4))
def test_random_patterns_mean_what_python_says(backend: GrammarBackend, number: int) -> None:
    dice = random.Random(number)
    for _ in range(20):
        source = pattern(dice, 3)
        want = {text for text in TEXTS if re.fullmatch(source, text)}
        compiled = grammar(backend, "regex", source)
        assert passing(compiled.matcher(), b"") == want, source
        try:
            within = grammar(backend, "json_schema", {"type": "string", "pattern": f"^(?:{source})$"})
        except GrammarError:
            continue
        matcher = within.matcher()
        assert matcher.accept(ord('"'))
        assert passing(matcher, b'"') == want, source


@pytest.mark.parametrize(
    ("source", "valid", "violating"),
    [
        ("^a(?:b[0-9]{1,3})?c$", ["ac", "ab1c"], ["a1c", "abc"]),
        ("[0-9]{2}(?:[.][0-9]{1,9})?Z", ["56Z", "56.8Z"], ["568Z"]),
        ('["\\\\]\\x41\\u0022b', ['"A"b', '\\A"b'], ['AA"b', '"A"']),
        ("\\d+\\s\\w", ["12 a", "1\n_"], ["١ a", "1 é", "1a"]),
        (".", ["a", "日", "😀"], ["\n", "\r", "", "ab"]),
    ],
)
def test_what_a_backend_got_wrong_once(
    backend: GrammarBackend, source: str, valid: list[str], violating: list[str]
) -> None:
    compiled = grammar(backend, "regex", source)
    assert [text for text in valid if not takes(compiled, text)] == []
    assert [text for text in violating if takes(compiled, text)] == []
