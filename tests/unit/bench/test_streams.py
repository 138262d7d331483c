"""Bytes as they came -> tokens and when they were there; and what became of a stream that failed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jackfield.entrypoints.bench.apis import APIS
from jackfield.entrypoints.bench.streams import AT_END, BY_CHUNK, NO_USAGE, Answer, Heard, events, read

DONE = b"data: [DONE]\n\n"


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def text(content: str, tokens: int | None = None, finish: str | None = None) -> bytes:
    usage = {} if tokens is None else {"usage": {"prompt_tokens": 5, "completion_tokens": tokens}}
    return event(choices=[{"text": content, "finish_reason": finish}], **usage)


def usage(tokens: int, cached: int = 0) -> bytes:
    details = {"cached_tokens": cached}
    return event(choices=[], usage={"prompt_tokens": 5, "completion_tokens": tokens, "prompt_tokens_details": details})


def answer(*pieces: tuple[float, bytes], api: str = "openai-completions", **fields: Any) -> Answer:
    return read(
        Heard(due=1.0, sent=1.0, wanted=4, ended=9.0, **{"status": 200, "pieces": list(pieces), **fields}), APIS[api]
    )


def test_events_are_complete_when_their_last_byte_came() -> None:
    pieces = [
        (1.0, b": hello\n\nda"),
        (2.0, b"ta: a\n"),
        (3.0, b"\r\ndata:b\ndata: c\r\n\r\ndata: d\n\n"),
        (4.0, b"data: e"),
    ]
    assert list(events(pieces)) == [(3.0, b"a"), (3.0, b"b\nc"), (3.0, b"d"), (4.0, b"e")]


def test_every_way_to_cut_a_stream_has_the_same_events() -> None:
    whole = b"event: x\r\ndata: a\r\n\r\ndata: b\n\n: ping\n\ndata: [DONE]\n\n"
    for size in range(1, len(whole)):
        pieces = [(0.0, whole[start : start + size]) for start in range(0, len(whole), size)]
        assert [data for _, data in events(pieces)] == [b"a", b"b", b"[DONE]"], size


def test_usage_of_each_chunk_counts() -> None:
    found = answer(
        (2.0, text("a", 1)), (3.0, text("b", 3)), (4.0, text("", 4, "length")), (4.5, usage(4, cached=2)), (5.0, DONE)
    )
    assert found.arrivals == [(2.0, 1), (3.0, 2), (4.0, 1)]
    assert (found.counted, found.finish, found.failure) == (BY_CHUNK, "length", None)
    assert (found.prompt_tokens, found.cached_tokens, found.tokens) == (5, 2, 4)


def test_a_chunk_without_new_tokens_is_no_arrival() -> None:
    found = answer((1.5, text("", 0)), (2.0, text("a", 2)), (3.0, text("b", 2)), (5.0, DONE))
    assert found.arrivals == [(2.0, 2)]


def test_usage_at_the_end_is_spread_over_the_chunks() -> None:
    found = answer((2.0, text("a")), (3.0, text("b")), (4.0, text("", None, "length")), (4.5, usage(6)), (5.0, DONE))
    assert found.arrivals == [(2.0, 3), (3.0, 3)]
    assert found.counted == AT_END


def test_without_usage_a_chunk_is_a_token() -> None:
    found = answer((2.0, text("a")), (3.0, text("b", None, "stop")), (5.0, DONE))
    assert (found.arrivals, found.counted) == ([(2.0, 1), (3.0, 1)], NO_USAGE)


def test_usage_of_no_tokens_beside_content_is_none() -> None:
    found = answer((2.0, text("a")), (3.0, text("b")), (4.5, usage(0)), (5.0, DONE))
    assert (found.arrivals, found.counted) == ([(2.0, 1), (3.0, 1)], NO_USAGE)


def test_a_field_for_errors_that_is_empty_is_no_error() -> None:
    found = answer((2.0, event(choices=[{"text": "a", "finish_reason": "stop"}], error=None)))
    assert (found.arrivals, found.failure) == ([(2.0, 1)], None)


def test_what_came_with_one_read_is_one_arrival() -> None:
    found = answer((2.0, text("a", 1) + text("b", 2)), (3.0, text("c", 3)), (5.0, DONE))
    assert found.arrivals == [(2.0, 2), (3.0, 1)]


@pytest.mark.parametrize("part", ["content", "reasoning_content", "reasoning"])
def test_chat(part: str) -> None:
    def delta(finish: str | None = None, **fields: Any) -> bytes:
        return event(choices=[{"delta": fields, "finish_reason": finish}], usage=None)

    found = answer(
        (1.5, delta(role="assistant", content="")), (2.0, delta(**{part: "a"})), (3.0, delta("stop")), api="openai-chat"
    )
    assert (found.arrivals, found.finish, found.failure) == ([(2.0, 1)], "stop", None)


def test_sglang() -> None:
    def meta(tokens: int, finish: Any = None) -> bytes:
        told = {"completion_tokens": tokens, "prompt_tokens": 5, "cached_tokens": 1, "finish_reason": finish}
        return event(text="x" * tokens, meta_info=told)

    found = answer((2.0, meta(1)), (3.0, meta(4, {"type": "length"})), (3.0, DONE), api="sglang-generate")
    assert (found.arrivals, found.finish, found.cached_tokens) == ([(2.0, 1), (3.0, 3)], "length", 1)
    found = answer((2.0, meta(1, {"type": "abort", "message": "no room"})), api="sglang-generate")
    assert found.failure == ("error in the stream", "no room")


@pytest.mark.parametrize(
    ("fields", "failure"),
    [
        ({"status": 503, "pieces": [(2.0, b'{"error": {"message": "full"}}')]}, ("HTTP 503", "full")),
        ({"status": 404, "pieces": [(2.0, b"<html>")]}, ("HTTP 404", "<html>")),
        ({"status": 422, "pieces": [(2.0, b'{"detail": "no such field"}')]}, ("HTTP 422", "no such field")),
        ({"status": None, "failure": ("no connection", "refused")}, ("no connection", "refused")),
        ({"pieces": [(2.0, event(error={"message": "out of slots"}))]}, ("error in the stream", "out of slots")),
        ({"pieces": [(2.0, event(error="plain"))]}, ("error in the stream", "plain")),
        ({"pieces": [(2.0, b"data: {no\n\n"), (3.0, DONE)]}, ("not understood", "{no")),
        ({"pieces": [(2.0, b"data: [1]\n\n"), (3.0, DONE)]}, ("not understood", "[1]")),
        ({"pieces": [(2.0, b'data: {"choices": [5]}\n\n')]}, ("not understood", '{"choices": [5]}')),
        (
            {"pieces": [(2.0, b'data: {"usage": {"completion_tokens": "2"}}\n\n')]},
            ("not understood", '{"usage": {"completion_tokens": "2"}}'),
        ),
        (
            {"pieces": [(2.0, b'data: {"usage": {"completion_tokens": -1}}\n\n')]},
            ("not understood", '{"usage": {"completion_tokens": -1}}'),
        ),
        ({"pieces": [(3.0, DONE)]}, ("no token", "the stream ended (None) and had no token")),
    ],
)
def test_failures_by_kind(fields: dict[str, Any], failure: tuple[str, str]) -> None:
    assert answer(**fields).failure == failure


def test_a_stream_that_breaks_off_keeps_what_came() -> None:
    found = answer((2.0, text("a", 1)))
    assert found.failure is not None
    assert found.failure[0] == "broken off"
    assert found.arrivals == [(2.0, 1)]
    # What the connection says goes before what its bytes say.
    assert answer((2.0, text("a", 1)), failure=("timeout", "ReadTimeout")).failure == ("timeout", "ReadTimeout")


def test_an_end_without_done_but_with_a_reason_is_one() -> None:
    assert answer((2.0, text("a", 1, "length"))).failure is None
