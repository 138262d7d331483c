from __future__ import annotations

import socket

import pytest

from jackfield.ipc.codec import BadMessage
from jackfield.ipc.framed_link import LARGEST_FRAME, FramedLink
from jackfield.ipc.messages import AbortRequest, FlushCacheRequest, StopRequest

TYPES = AbortRequest | StopRequest


@pytest.fixture
def ends() -> tuple[socket.socket, FramedLink]:
    one, other = socket.socketpair()
    return one, FramedLink(other, TYPES)


def test_messages_come_out_as_they_went_in_whatever_the_pieces(ends: tuple[socket.socket, FramedLink]) -> None:
    far, link = ends
    sent = [AbortRequest(rid="a" * 200), StopRequest(rid="b"), AbortRequest(abort_all=True)]
    collector, source = socket.socketpair()
    for message in sent:
        assert FramedLink(source, TYPES).send(message)
    raw = collector.recv(65536)
    for i in range(0, len(raw), 7):
        far.sendall(raw[i : i + 7])
    assert [link.receive() for _ in sent] == sent
    far.close()
    assert link.receive() is None
    for one in (collector, source):
        one.close()
    link.close()


@pytest.mark.parametrize("frame", [b"\x05\x00\x00\x00junk!", (LARGEST_FRAME + 1).to_bytes(4, "little") + b"x"])
def test_what_is_no_message_is_one_error(ends: tuple[socket.socket, FramedLink], frame: bytes) -> None:
    far, link = ends
    far.sendall(frame)
    with pytest.raises(BadMessage):
        link.receive()
    far.close()
    link.close()


def test_a_message_of_another_side_is_refused(ends: tuple[socket.socket, FramedLink]) -> None:
    far, link = ends
    FramedLink(far, TYPES).send(FlushCacheRequest(control_id=1))
    with pytest.raises(BadMessage):
        link.receive()
    far.close()
    link.close()


def test_sending_to_nobody_is_told_and_reading_without_blocking_returns(ends: tuple[socket.socket, FramedLink]) -> None:
    far, link = ends
    assert link.fill(block=False) is False
    far.close()
    assert link.send(StopRequest(rid="x")) is False
    link.close()
