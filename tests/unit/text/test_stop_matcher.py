"""Stop strings against a slow model that looks at the whole text (B04)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.managers.text.stop import StopMatcher

STOPS = st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=4)
TEXT = st.text(alphabet="abc", max_size=30)


def model(text: str, stops: list[str]) -> tuple[str, str | None]:
    """(text before the match, match): the first position at which some stop string ends, the longest one there."""
    for end in range(1, len(text) + 1):
        there = [stop for stop in stops if text[:end].endswith(stop)]
        if there:
            longest = max(there, key=len)
            return text[: end - len(longest)], longest
    return text, None


def held_back(text: str, stops: list[str]) -> int:
    return max((size for stop in stops for size in range(len(stop)) if text.endswith(stop[:size])), default=0)


@given(text=TEXT, stops=STOPS, cuts=st.lists(st.integers(0, 30)))
def test_b04_any_cut_shows_what_the_whole_text_shows(text: str, stops: list[str], cuts: list[int]) -> None:
    matcher = StopMatcher(stops)
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    shown, matched = "", None
    for start, end in itertools.pairwise(edges):
        part, matched = matcher.feed(text[start:end])
        shown += part
        if matched is not None:
            break
        # Exactly the beginning of a stop string is held back, never more.
        assert shown == text[: end - held_back(text[:end], stops)]
    shown += matcher.flush()
    assert (shown, matched) == model(text, stops)


def test_b04_nothing_of_a_stop_string_that_spans_parts_leaks() -> None:
    matcher = StopMatcher(["FGHIJ"])
    assert [matcher.feed(part) for part in ("DE", "F", "GH", "IJK")] == [
        ("DE", None),
        ("", None),
        ("", None),
        ("", "FGHIJ"),
    ]


def test_a_false_beginning_is_released_as_soon_as_it_fails() -> None:
    matcher = StopMatcher(["aab"])
    assert [matcher.feed(char)[0] for char in "aaac"] == ["", "", "a", "aac"]


def test_first_to_complete_wins_and_of_equals_the_longest() -> None:
    assert StopMatcher(["bcd", "c"]).feed("abcd") == ("ab", "c")
    assert StopMatcher(["d", "bcd", "cd"]).feed("abcd") == ("a", "bcd")


def test_nothing_is_shown_after_a_match() -> None:
    matcher = StopMatcher(["x"])
    assert matcher.feed("axb") == ("a", "x")
    assert matcher.feed("more") == ("", "x")
    assert matcher.flush() == ""


def test_no_stops_hold_nothing_back() -> None:
    assert StopMatcher([]).feed("anything") == ("anything", None)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])


def test_characters_outside_the_basic_plane_count_as_one() -> None:
    assert StopMatcher(["😀!"]).feed("a😀😀!b") == ("a😀", "😀!")
