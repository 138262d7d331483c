"""The nearest names and the shape of a refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.config.errors import LIST_AT_MOST, ConfigurationError, did_you_mean, nearest, refuse

FLAGS = ["--page-size", "--tp-size", "--cache-policy", "--schedule-policy", "--port", "--max-running-requests"]


@pytest.mark.parametrize(
    ("name", "best"),
    [
        ("--page-siz", "--page-size"),
        ("--page_size", "--page-size"),
        ("--PAGE-SIZE", "--page-size"),
        ("--prot", "--port"),
        ("--cache", "--cache-policy"),
        ("--max-running", "--max-running-requests"),
    ],
)
def test_the_nearest_name_comes_first(name: str, best: str) -> None:
    assert nearest(name, FLAGS)[0] == best


def test_nothing_is_offered_for_what_is_like_nothing() -> None:
    assert nearest("--zzz", FLAGS) == []
    assert nearest("", FLAGS) == []


def test_a_very_good_match_stands_alone() -> None:
    assert nearest("--page-siz", FLAGS) == ["--page-size"]


@given(st.lists(st.text(min_size=1, max_size=8), max_size=6), st.text(max_size=8))
def test_only_choices_are_offered_and_each_once(choices: list[str], name: str) -> None:
    found = nearest(name, choices)
    assert len(found) <= 3
    assert len(set(found)) == len(found)
    assert set(found) <= set(choices)


def test_a_message_ends_with_the_nearest_or_else_with_all_valid_names() -> None:
    assert did_you_mean("radx", ["radix", "chunk"]) == "; did you mean 'radix'?"
    assert did_you_mean("zzz", ["radix", "chunk"]) == "; valid: radix, chunk"
    assert did_you_mean("zzz", []) == "; there is nothing valid here"
    assert did_you_mean("zzz", [f"name{i}" for i in range(LIST_AT_MOST + 1)]) == ""


def test_several_problems_are_one_error() -> None:
    assert str(refuse(["a is wrong"])) == "a is wrong"
    error = refuse(["a is wrong", "b is wrong"])
    assert isinstance(error, ConfigurationError)
    assert error.exit_code == 2
    assert "2 problems" in error.message
    assert error.message.index("a is wrong") < error.message.index("b is wrong")
