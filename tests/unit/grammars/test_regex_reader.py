"""The dialect of regular expressions: what is read matches what Python's `re` matches, the rest is refused with its place."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.grammars.regex_reader import read_regex
from jackfield.grammars.regex_syntax import MOST_POSITIONS, complement, regex_text, union
from jackfield.hookspecs import GrammarError
from tests.unit.grammars.backends import refusal

READ = [
    "abc", "a|b", "^(a|b)+$", r"\d{2,3}-[^a-c\"]", r"\u65e5\ud83d\ude00", "[😀-😂]", r"[\w.-]+@x", "(?<name>a)(?:b)", "a{0}b",
    ".*",    r"[\]\-a]+", r"\x41\t\/", "a??b+?", r"[^\d]", "a{2}", "a{2,}", "(a|)b", "", "[a-]", r"\S\s\D",
]  # fmt: skip
TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "abc",
    "aab",
    "aa",
    "aaa",
    "12-x",
    "123-d",
    "日😀",
    "😁",
    "a.b-c@x",
    "A\t/",
    "]-a",
    "5",
    "é",
    "x \t1",
    "a-",
]


def python(pattern: str) -> str:
    """The tree's own text in Python's words."""
    return re.sub(r"\\u\{([0-9a-f]+)\}", lambda found: re.escape(chr(int(found[1], 16))), pattern)


@pytest.mark.parametrize("pattern", READ)
@pytest.mark.parametrize("search", [False, True])
def test_it_matches_what_python_matches(pattern: str, search: bool) -> None:
    ours = re.compile(python(regex_text(read_regex(pattern, search=search))), re.DOTALL)
    theirs = re.compile(re.sub(r"\(\?<(?=\w)", "(?P<", pattern).replace(r"\ud83d\ude00", "😀"), re.ASCII)
    for text in TEXTS:
        want = theirs.search(text) if search else theirs.fullmatch(text)
        assert bool(ours.fullmatch(text)) == bool(want), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "place", "word"),
    [
        ("(((", 3, "not closed"),
        ("[a", 1, "not closed"),
        ("a)", 2, "closes no group"),
        ("a{3,1}", 2, "more than it allows"),
        ("[z-a]", 3, "comes before"),
        ("*a", 1, "repeats nothing"),
        ("a**", 3, "repetition of a repetition"),
        ("a(?=b)", 2, "looks ahead"),
        ("(?<!a)b", 1, "looks behind"),
        (r"(a)\1", 4, "reference back"),
        (r"a\b", 2, "word boundary"),
        (r"\p{L}", 1, "property of Unicode"),
        ("(?i)a", 1, "flags"),
        ("a^b", 2, "end of the pattern"),
        ("(^a)", 2, "inside a group"),
        ("x{", 2, "no repetition"),
        ("a}", 2, "different engines"),
        ("[[a]]", 2, "different engines"),
        ("\\", 1, "ends the pattern"),
        (r"\q", 1, "agree on"),
        (r"\ud800", 1, "no character"),
        ("[]", 1, "fits nothing"),
        (r"[\d-x]", 4, "range"),
        ("(" * 60 + ")" * 60, 52, "deep"),
    ],
)
def test_b68_what_it_does_not_read_is_refused_with_its_place(pattern: str, place: int, word: str) -> None:
    with pytest.raises(GrammarError) as caught:
        read_regex(pattern, where="pattern /x")
    assert caught.value.message.startswith(f"pattern /x, character {place}: ")
    assert word in caught.value.message


@pytest.mark.parametrize(
    "pattern", ["a{1,100000}", "(a{1,1000}){1,1000}", "((a{50}b{50}){50}c){50}", f"a{{{MOST_POSITIONS + 1}}}"]
)
def test_what_repetitions_come_to_is_bounded(pattern: str) -> None:
    with pytest.raises(GrammarError, match="written out"):
        read_regex(pattern)


@given(st.text(max_size=40))
def test_b68_any_text_is_read_or_refused(pattern: str) -> None:
    assert refusal(lambda: regex_text(read_regex(pattern))) != ""


@given(
    st.lists(
        st.tuples(st.integers(0, 0xD7FF), st.integers(0, 200)).map(
            lambda pair: (pair[0], min(pair[0] + pair[1], 0xD7FF))
        )
    )
)
def test_complements_are_exact(spans: list[tuple[int, int]]) -> None:
    ranges = union(tuple(spans))
    other = complement(ranges)
    assert complement(other) == ranges
    assert sum(high - low + 1 for low, high in ranges + other) == 0x110000 - 0x800
