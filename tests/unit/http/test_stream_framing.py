"""The short ways of a stream make the bytes that the long ones make."""

from __future__ import annotations

from typing import Any

import h11
import pytest

from jackfield.entrypoints.http.protocol import Connection
from jackfield.entrypoints.http.sse import ChoiceEvents, event


def answered(made: h11.Connection, head: bytes, headers: list[tuple[str, str]], chunks: list[bytes]) -> bytes:
    made.receive_data(head)
    while made.next_event() not in (h11.PAUSED, h11.NEED_DATA):
        pass
    sent = made.send(h11.Response(status_code=200, headers=headers)) or b""
    for chunk in chunks:
        sent += made.send(h11.Data(data=chunk)) or b""
    return sent + (made.send(h11.EndOfMessage()) or b"")


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize("headers", [[], [("content-length", "5")]])
def test_chunks_are_framed_as_h11_does_it(version: bytes, method: bytes, headers: list[tuple[str, str]]) -> None:
    head = method + b" / HTTP/" + version + b"\r\nhost: x\r\n\r\n"
    chunks = [b""] if method == b"HEAD" else [b"ab", b"", b"cde"]
    ours, theirs = (answered(made(h11.SERVER), head, headers, chunks) for made in (Connection, h11.Connection))
    assert ours == theirs


def test_each_answer_of_a_connection_is_framed_by_its_own_head() -> None:
    ours, theirs = Connection(h11.SERVER), h11.Connection(h11.SERVER)
    for headers in ([], [("content-length", "2")], []):
        told = [answered(one, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", headers, [b"ab"]) for one in (ours, theirs)]
        assert told[0] == told[1]
        ours.start_next_cycle(), theirs.start_next_cycle()


def test_nothing_is_sent_after_the_end() -> None:
    made = Connection(h11.SERVER)
    answered(made, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", [], [b"ab"])
    with pytest.raises(h11.LocalProtocolError):
        made.send(h11.Data(data=b"more"))


@pytest.mark.parametrize("model", ["m", '"choices":[', 'é\n"'])
def test_a_choice_is_put_into_what_stays_the_same(model: str) -> None:
    def whole(*choices: Any) -> dict[str, Any]:
        return {"id": "1", "model": model, "choices": list(choices), "usage": None}

    choice = {"index": 0, "delta": {"content": 'a "b" é'}, "finish_reason": None}
    assert ChoiceEvents(whole()).event(choice) == event(whole(choice))
