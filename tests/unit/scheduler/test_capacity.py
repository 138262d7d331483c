"""The one capacity function: B22, B30, B36."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.managers.errors import RequestError
from jackfield.managers.requests.capacity import CapacityError, check_capacity, kv_tokens


def granted(prompt: int, new: int, *, context: int = 100, slots: int = 1000, page_size: int = 1) -> int:
    return check_capacity(prompt, new, context_length=context, total_slots=slots, page_size=page_size)


@pytest.mark.parametrize(
    ("prompt", "new", "expected"),
    [(99, 1, 1), (99, 2, 2), (99, 3, 2), (100, 1, 1), (100, 50, 1), (100, 0, 0), (1, 100, 100), (1, 101, 100)],
)
def test_b30_the_context_edge_is_exact_and_room_is_clamped(prompt: int, new: int, expected: int) -> None:
    assert granted(prompt, new) == expected


def test_b30_one_token_over_the_context_names_both_numbers() -> None:
    with pytest.raises(CapacityError) as caught:
        granted(101, 1)
    error = caught.value
    assert isinstance(error, RequestError)
    assert (error.status_code, error.code, error.param) == (400, "context_length_exceeded", "input_ids")
    assert "101" in error.message
    assert "100" in error.message


def test_b36_a_prompt_larger_than_the_pool_is_refused_and_says_what_helps() -> None:
    with pytest.raises(CapacityError, match=r"600 tokens.*holds 512.*--max-total-tokens"):
        granted(600, 1, context=8192, slots=512)
    assert granted(512, 100, context=8192, slots=512) == 1
    assert granted(500, 100, context=8192, slots=512) == 13


def test_b22_an_empty_prompt_is_refused() -> None:
    with pytest.raises(CapacityError, match="empty") as caught:
        granted(0, 10)
    assert caught.value.status_code == 400


def test_a_negative_cap_is_refused() -> None:
    with pytest.raises(CapacityError, match="max_new_tokens is -1"):
        granted(5, -1)


@given(
    prompt=st.integers(1, 300),
    new=st.integers(0, 300),
    context=st.integers(1, 300),
    pages=st.integers(1, 64),
    page_size=st.sampled_from([1, 4, 16]),
)
def test_whatever_is_granted_fits(prompt: int, new: int, context: int, pages: int, page_size: int) -> None:
    slots = pages * page_size
    try:
        got = granted(prompt, new, context=context, slots=slots, page_size=page_size)
    except CapacityError:
        assert prompt > min(context, slots)
        return
    assert 0 <= got <= new
    assert kv_tokens(prompt, got) <= min(context, slots)
    if got < new:
        assert kv_tokens(prompt, got + 1) > min(context, slots)
    assert (got == 0) == (new == 0)
