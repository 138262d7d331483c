"""Cache salts on their way in: what is taken, what is refused, and that a refusal does not repeat them."""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.managers.errors import RequestError
from jackfield.managers.fields.cache_salt import cache_salts, extra_keys
from jackfield.managers.fields.limits import DEFAULT_LIMITS
from jackfield.managers.requests.generate_request import GenerateRequest
from jackfield.managers.scheduler.request import cache_namespace


@pytest.mark.parametrize(
    ("given", "count", "salts"),
    [
        (None, 2, [None, None]),
        ("a", 2, ["a", "a"]),
        (["a", None], 2, ["a", None]),
        (("a", "b"), 2, ["a", "b"]),
        ("é" * DEFAULT_LIMITS.max_cache_salt_length, 1, ["é" * DEFAULT_LIMITS.max_cache_salt_length]),
    ],
)
def test_one_for_all_or_one_for_each(given: Any, count: int, salts: list[str | None]) -> None:
    assert list(cache_salts(given, count)) == salts


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "1 to 256 characters, not 0"),
        ("hunter2" * 100, "1 to 256 characters, not 700"),
        (["hunter2"], "1 entries for 2 prompts"),
        (["hunter2", 7], "must be a text, not int"),
        (b"hunter2", "must be a text, not bytes"),
        ({"hunter2": 1}, "must be a text, not dict"),
        (True, "must be a text, not bool"),
        ("hunter2\ud800", "valid Unicode"),
    ],
)
def test_refusals_name_the_field_and_not_the_salt(given: Any, why: str) -> None:
    with pytest.raises(RequestError, match=why) as caught:
        cache_salts(given, 2)
    assert caught.value.param == "cache_salt"
    assert "hunter2" not in str(caught.value)


def test_the_namespace_holds_a_hash_and_the_weight_version() -> None:
    salted = cache_namespace("7", 0, "hunter2")
    assert b"hunter2" not in salted
    assert salted == cache_namespace("7", 0, "hunter2")
    others = [("7", 0, None), ("7", 0, "hunter3"), ("8", 0, "hunter2"), ("7", 1, "hunter2")]
    assert len({salted, *(cache_namespace(*parts) for parts in others)}) == 5
    assert len(cache_namespace("7", 0, "x" * DEFAULT_LIMITS.max_cache_salt_length)) == len(salted)


def test_an_extra_key_divides_the_namespace_once_more() -> None:
    parts = [("a", "b"), ("b", "a"), (None, "a"), ("a", None), (None, None), (None, "b"), ("ab", None)]
    namespaces = [cache_namespace("7", 0, *salt_and_key) for salt_and_key in parts]
    assert len(set(namespaces)) == len(parts)
    assert namespaces[0] == cache_namespace("7", 0, "a", "b")
    assert list(extra_keys(["x", None], 2)) == ["x", None]
    for wrong in ("", 5, ["x"], "x" * 257):
        with pytest.raises(RequestError) as caught:
            extra_keys(wrong, 2)
        assert caught.value.param == "extra_key"


def test_a_request_does_not_show_its_salt() -> None:
    assert "hunter2" not in repr(GenerateRequest(prompt="a", cache_salt="hunter2", extra_key="hunter2"))
