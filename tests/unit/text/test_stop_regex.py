"""Stop expressions: what is taken, how long matches are, where the first one ends however the text is cut (R14: no pattern
makes it slow)."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.managers.errors import RequestError
from jackfield.managers.fields.limits import DEFAULT_LIMITS
from jackfield.managers.fields.sampling_params import make_sampling_params
from jackfield.managers.text.regex_width import PatternError, width
from jackfield.managers.text.stop import StopMatcher
from jackfield.managers.text.stop_regex import StopRegex, check_match_length, stop_regexes

WIDTHS: list[tuple[str, tuple[int, int | None]]] = [
    ("abc", (3, 3)),
    ("a|bcd|", (0, 3)),
    ("a?b{2,5}c{3}", (5, 9)),
    ("(ab){2,3}?", (4, 6)),
    ("(?:ab|c)(?P<n>d)(?<m>e)", (3, 4)),
    ("(?i)stop", (4, 4)),
    ("(?i:ab)c", (3, 3)),
    ("[a-z0-9]{1,4}", (1, 4)),
    ("[]a][^]a]", (2, 2)),
    ("[[:alpha:]]{2}", (2, 2)),
    ("[\\]x][\\x{41}-\\x{5A}]", (2, 2)),
    ("\\d\\.\\n\\pL\\p{Greek}\\x41\\x{1F600}", (7, 7)),
    ("\\07777", (3, 3)),
    ("a{,5}", (5, 5)),
    ("a{02}", (5, 5)),
    ("a{", (2, 2)),
    ("é.{3}", (4, 4)),
    ("a*", (0, None)),
    ("a+b", (2, None)),
    ("a{2,}", (2, None)),
    ("(a{0})*", (0, 0)),
]


@pytest.mark.parametrize(("pattern", "expected"), WIDTHS)
def test_the_length_of_matches(pattern: str, expected: Any) -> None:
    assert width(pattern) == expected


REFUSED = [
    "a+", "a*b", "x{3,}", ".{0,513}", "(a{30}){30}",  # too long, or without end
    "", "a?", "a|", "(a{0})*", "(?i)", "x{0,3}y{0,3}",  # the empty text
    "^a", "a$", "\\bword\\b", "\\Aa", "a\\z", "a\\B", "(?=a)b", "(?!a)b", "(?<=a)b", "(?<!a)b",  # looks beyond
    "(a", "a)", "[a", "a\\", "(?P<n", "\\p{Greek", "a**", "*a", "\\1", "(a)\\1", "a{3,2}", "\\Qa\\E", "\\C", "(?>a)", "(?x)a",
    "(?#c)a", "\\h", "[z-a]", "\\p{NoSuch}", "(" * 40 + "a" + ")" * 40,
]  # fmt: skip


def compiled(pattern: str) -> StopRegex:
    check_match_length(pattern, DEFAULT_LIMITS.max_stop_regex_match)
    return StopRegex(pattern)


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_is_not_taken_is_a_400_that_names_the_pattern(pattern: str) -> None:
    with pytest.raises(RequestError) as caught:
        make_sampling_params({"stop_regex": ["ok", pattern]}, defaults={}, vocab_size=10)
    assert caught.value.param == "stop_regex"
    assert repr(pattern)[:60] in caught.value.message
    with pytest.raises(PatternError):
        compiled(pattern)


@pytest.mark.parametrize("bad", [5, [5], {"a": 1}, b"a", True, ["a"] * 33, "a" * 257, "\ud800"])
def test_b85_types_and_ceilings(bad: Any) -> None:
    with pytest.raises(RequestError) as caught:
        make_sampling_params({"stop_regex": bad}, defaults={}, vocab_size=10)
    assert caught.value.param == "stop_regex"


def test_what_is_taken() -> None:
    made = make_sampling_params({"stop_regex": ["a{2}", "b", "a{2}"]}, defaults={}, vocab_size=10)
    assert made.stop_regex == ("a{2}", "b")
    nothings: tuple[Any, ...] = (None, [])
    for nothing in nothings:
        assert make_sampling_params({"stop_regex": nothing}, defaults={}, vocab_size=10).stop_regex == ()
    longest = DEFAULT_LIMITS.max_stop_regex_match
    check_match_length(f".{{{longest}}}", longest)
    assert StopRegex(f".{{{longest}}}").longest == longest


def test_the_first_to_end_wins_and_then_the_longest() -> None:
    assert StopRegex("abcdef|cd").first_match("xabcdef") == (3, 5)
    assert StopRegex("b|abb").first_match("aabb") == (2, 3)
    assert StopRegex("[ab]{2,4}").first_match("xaabb") == (1, 3)
    assert StopRegex("é\\d").first_match("éé7") == (1, 3)
    assert StopRegex("q").first_match("xyz") is None


def run(matcher: StopMatcher, text: str, cuts: list[int]) -> tuple[str, str | None]:
    shown = ""
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for begin, end in itertools.pairwise(edges):
        some, matched = matcher.feed(text[begin:end])
        shown += some
        if matched is not None:
            return shown, matched
    return shown + matcher.flush(), None


def slow_twin(patterns: list[str], stops: list[str], text: str) -> tuple[str, str | None]:
    """Every part of the text, by its end and then its length; strings before patterns."""
    for end in range(1, len(text) + 1):
        for begin in range(end):
            part = text[begin:end]
            for stop in stops:
                if part == stop:
                    return text[:begin], stop
            for pattern in patterns:
                if re.fullmatch(pattern, part):
                    return text[:begin], pattern
    return text, None


ATOMS = st.sampled_from(["a", "b", "é", ".", "[ab]", "[^a]", "(?:a|bb)"])
PIECES = st.tuples(ATOMS, st.sampled_from(["", "?", "{2}", "{1,3}", "??"])).map("".join)
PATTERNS = st.lists(PIECES, min_size=1, max_size=4).map("".join)


def taken(pattern: str) -> bool:
    return width(pattern)[0] > 0


@settings(deadline=None, max_examples=300)
@given(
    st.lists(PATTERNS.filter(taken), min_size=1, max_size=3, unique=True),
    st.lists(st.text("abé", min_size=1, max_size=4), max_size=2, unique=True),
    st.text("abéx", max_size=30),
    st.lists(st.integers(0, 30), max_size=8),
)
def test_the_same_as_the_slow_twin_however_the_text_is_cut(
    patterns: list[str], stops: list[str], text: str, cuts: list[int]
) -> None:
    shown, matched = run(StopMatcher(stops, stop_regexes(patterns)), text, cuts)
    expected_shown, expected = slow_twin(patterns, stops, text)
    assert shown == expected_shown
    assert (matched is None) == (expected is None)
    assert matched in {*patterns, *stops, None}


def test_held_back_is_the_longest_match_less_one() -> None:
    matcher = StopMatcher([], stop_regexes(["Q:.{0,3}!"]))
    assert matcher.feed("0123456789") == ("01234", None)
    assert matcher.feed("") == ("", None)
    assert matcher.feed("Q: ") == ("567", None)
    assert matcher.feed("x") == ("8", None)
    assert matcher.feed("! and more") == ("9", "Q:.{0,3}!")
    assert matcher.matched_text == "Q: x!"
    assert matcher.feed("more") == ("", "Q:.{0,3}!")


def test_r14_a_pattern_that_hangs_backtracking_engines_is_linear_here() -> None:
    """With Python's re a search for this in 60 letters takes longer than anybody waits."""
    matcher = StopMatcher([], stop_regexes(["(?:a{1,8}){1,8}(?:a{1,8}){1,8}(?:a|aa){1,60}b"]))
    text = "a" * 5000
    shown = "".join(matcher.feed(char)[0] for char in text) + matcher.flush()
    assert shown == text


HEAVY = ["(?:.?){511}\\x00", ".{0,500}x"]


@pytest.mark.parametrize("pattern", HEAVY)
def test_r14_b85_a_pattern_that_would_take_long_with_each_token_is_refused(pattern: str) -> None:
    with pytest.raises(RequestError, match="steps of matching") as refused:
        make_sampling_params({"stop_regex": pattern}, defaults={}, vocab_size=100)
    assert refused.value.param == "stop_regex"


def test_b85_the_work_of_all_patterns_counts_together() -> None:
    patterns = [f"{letter}[^\\n]{{0,200}}END" for letter in "abcdefgh"]
    make_sampling_params({"stop_regex": patterns[:4]}, defaults={}, vocab_size=100)
    make_sampling_params({"stop_regex": [patterns[0]] * 32}, defaults={}, vocab_size=100)
    with pytest.raises(RequestError, match="fewer patterns"):
        make_sampling_params({"stop_regex": patterns}, defaults={}, vocab_size=100)
