"""Bodies at their ceilings (B85), and what is no JSON (B20)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.guards.body import ClientGone, parse_json, read_body
from jackfield.managers.fields.nesting import measured

JSON = {"content-type": "application/json"}
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='[]{}\\"a/\n'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[{"\\a'), inner, max_size=3),
    max_leaves=12,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(value=values)
def test_the_depth_of_a_body_is_seen_without_parsing_it(value: Any) -> None:
    body = json.dumps(value).encode()
    deep = depth(value)
    for chunk in (1, 3, 1 << 16):
        assert measured(body, max(deep, 1), None, chunk) is None
        if deep > 1:
            assert measured(body, deep - 1, None, chunk) == "deep"


def count(value: Any) -> int:
    """Lists and objects, and what stands behind a comma in them."""
    if not isinstance(value, dict | list):
        return 0
    inner = list(value.values()) if isinstance(value, dict) else value
    return 1 + max(len(inner) - 1, 0) + sum(map(count, inner))


@given(value=values)
def test_the_values_of_a_body_are_counted_without_making_them(value: Any) -> None:
    body = json.dumps(value).encode()
    held = count(value)
    for chunk in (1, 3, 1 << 16):
        assert measured(body, 100, max(held, 1), chunk) is None
        if held > 1:
            assert measured(body, 100, held - 1, chunk) == "many"


def test_b85_a_body_of_small_values_is_refused_before_they_are_made() -> None:
    with pytest.raises(ApiError) as refused:
        parse_json(JSON, b'{"x":[' + b"[]," * 10**6 + b"1]}", 64, 2**20)
    assert (refused.value.status, refused.value.code) == (400, "json_too_many_values")
    text = "a,[{" * 10**6
    assert parse_json(JSON, json.dumps({"x": text}).encode(), 64, 10) == {"x": text}


@pytest.mark.parametrize("opened", [b"[", b'{"a":'])
def test_a_very_deep_body_is_refused(opened: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        parse_json(JSON, b'{"x":' + opened * 100_000, 64, 2**20)
    assert (refused.value.status, refused.value.code) == (400, "json_too_deep")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nope",
        b"{'a': 1}",
        b'{"a": 1,}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b"[1]",
        b'"text"',
        b"null",
        b'{"a": 1} {"b": 2}',
    ],
)
def test_what_is_no_json_object_is_a_400(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        parse_json(JSON, body, 64, 2**20)
    assert (refused.value.status, refused.value.code) == (400, "invalid_json")


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"])
def test_a_wrong_content_type_is_a_400(kind: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_json({"content-type": kind}, b"{}", 64, 2**20)
    assert (refused.value.status, refused.value.code) == (400, "unsupported_media_type")
    assert parse_json({"content-type": "Application/JSON; charset=utf-8"}, b"{}", 64, 2**20) == {}


class Client:
    """A client that sends chunks, and counts how many were taken."""

    def __init__(self, *chunks: bytes, ends: bool = True) -> None:
        self.chunks = list(chunks)
        self.taken = 0
        self.ends = ends

    async def __call__(self) -> dict[str, Any]:
        if self.taken == len(self.chunks):
            return {"type": "http.disconnect"}
        self.taken += 1
        last = self.taken == len(self.chunks)
        return {"type": "http.request", "body": self.chunks[self.taken - 1], "more_body": not (last and self.ends)}


async def test_a_body_comes_in_pieces() -> None:
    assert await read_body({}, Client(b"ab", b"", b"cd"), 4, 60) == b"abcd"


@pytest.mark.parametrize("stated", ["101", "1000000000", "9" * 5000])
async def test_a_stated_length_over_the_limit_is_refused_before_a_byte_is_read(stated: str) -> None:
    client = Client(b"x" * 10)
    with pytest.raises(ApiError) as refused:
        await read_body({"content-length": stated}, client, 100, 60)
    assert refused.value.status == 413
    assert client.taken == 0


@pytest.mark.parametrize("headers", [{}, {"content-length": "1"}, {"content-length": "nonsense"}])
async def test_a_longer_body_than_stated_is_cut_off(headers: dict[str, str]) -> None:
    client = Client(*[b"x" * 60] * 50)
    with pytest.raises(ApiError) as refused:
        await read_body(headers, client, 100, 60)
    assert refused.value.status == 413
    assert client.taken == 2


async def test_a_client_that_goes_in_the_middle() -> None:
    with pytest.raises(ClientGone):
        await read_body({}, Client(b"ab", ends=False), 100, 60)
