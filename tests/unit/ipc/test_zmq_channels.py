from __future__ import annotations

import logging
import os
import pickle
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from jackfield.ipc import zmq_channels
from jackfield.ipc.messages import AbortRequest, ControlReply, StopRequest, ToScheduler
from jackfield.ipc.run_directory import RunDirectory, socket_path
from jackfield.ipc.zmq_channels import FrameTooLarge, ZmqReceiver, ZmqSender

PATIENCE = 60.0


@pytest.fixture
def made() -> Iterator[Callable[[Any], Any]]:
    """Takes what must be closed at the end."""
    everything: list[Any] = []

    def take(one: Any) -> Any:
        everything.append(one)
        return one

    yield take
    for one in everything:
        one.close()


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    context: zmq.Context[Any] = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def path() -> Iterator[Path]:
    directory = RunDirectory.create()
    yield socket_path(directory.path, "scheduler")
    directory.remove()


@pytest.fixture
def receiver(context: zmq.Context[Any], path: Path) -> Iterator[ZmqReceiver]:
    receiver = ZmqReceiver(context, path, ToScheduler)
    yield receiver
    receiver.close()


def next_of(receiver: ZmqReceiver) -> Any:
    while (message := receiver.receive()) is None:
        assert receiver.wait(PATIENCE)
    return message


def test_messages_arrive_in_order_even_if_sent_before_the_other_side_is_there(
    made: Callable[[Any], Any], context: zmq.Context[Any], path: Path
) -> None:
    sender = made(ZmqSender(context, path, ToScheduler, blocks=False))
    sent = [AbortRequest(rid=str(i)) for i in range(2000)]
    for message in sent:
        sender.send(message)
    receiver = ZmqReceiver(context, path, ToScheduler)
    assert [next_of(receiver) for _ in sent] == sent
    assert receiver.receive() is None
    receiver.close()


def test_the_socket_is_private_and_goes_with_its_receiver(receiver: ZmqReceiver, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    receiver.close()
    assert not path.exists()
    receiver.wake()
    receiver.close()


@pytest.mark.parametrize("blob", [pickle.dumps({"rid": "a"}), b"", b"\xff" * 100, b"\x81\xa4type\xa1x"])
def test_b87_a_foreign_frame_is_counted_told_once_and_dropped(
    made: Callable[[Any], Any],
    context: zmq.Context[Any],
    receiver: ZmqReceiver,
    path: Path,
    blob: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    foreign = made(context.socket(zmq.PUSH))
    foreign.connect(f"ipc://{path}")
    with caplog.at_level(logging.WARNING, "jackfield"):
        for _ in range(3):
            foreign.send(blob)
        foreign.send_multipart([blob, blob])
        foreign.send(zmq_channels.Codec(ControlReply).encode(ControlReply(control_id=1, ok=True)))
        foreign.send(zmq_channels.Codec(ToScheduler).encode(StopRequest(rid="x")))
        assert next_of(receiver) == StopRequest(rid="x")
    assert receiver.bad_frames == 5
    assert len(caplog.records) == 1


def test_b87_a_blob_without_the_protocol_reaches_nobody(
    made: Callable[[Any], Any], context: zmq.Context[Any], receiver: ZmqReceiver, path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(path))
        raw.sendall(pickle.dumps({"rid": "a" * 1000}) * 10)
        sender = made(ZmqSender(context, path, ToScheduler, blocks=False))
        sender.send(StopRequest(rid="x"))
        # Whatever the library makes of it, it is no message.
        assert next_of(receiver) == StopRequest(rid="x")
        assert receiver.receive() is None


def test_a_frame_above_the_cap_is_refused_here_and_cut_off_there(
    made: Callable[[Any], Any], context: zmq.Context[Any], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zmq_channels, "LARGEST_FRAME", 1000)
    receiver = ZmqReceiver(context, path, ToScheduler)
    sender = made(ZmqSender(context, path, ToScheduler, blocks=False))
    with pytest.raises(FrameTooLarge, match="AbortRequest"):
        sender.send(AbortRequest(rid="a" * 1001))
    foreign = made(context.socket(zmq.PUSH))
    foreign.connect(f"ipc://{path}")
    foreign.send(b"x" * 1001)
    sender.send(StopRequest(rid="x"))
    assert next_of(receiver) == StopRequest(rid="x")
    assert receiver.receive() is None
    receiver.close()


def test_a_full_blocking_channel_stops_its_sender_and_loses_nothing(
    made: Callable[[Any], Any], context: zmq.Context[Any], receiver: ZmqReceiver, path: Path
) -> None:
    sender = made(ZmqSender(context, path, ToScheduler, blocks=True))
    count = 6 * zmq_channels.HIGH_WATER_MARK
    sent: list[int] = []

    def send() -> None:
        for i in range(count):
            sender.send(AbortRequest(rid=str(i)))
            sent.append(i)

    thread = threading.Thread(target=send)
    thread.start()
    assert receiver.wait(PATIENCE)
    assert [next_of(receiver).rid for _ in range(count)] == [str(i) for i in range(count)]
    thread.join()


def test_wait_returns_for_a_ring_and_for_a_deadline(receiver: ZmqReceiver) -> None:
    assert receiver.wait(0.0) is False
    assert receiver.wait(0.001) is False
    for _ in range(100_000):
        receiver.wake()  # never blocks, however many
    assert receiver.wait(PATIENCE) is False
    assert receiver.wait(0.0) is False
    waiting = threading.Thread(target=receiver.wait)
    waiting.start()
    receiver.wake()
    waiting.join()


def test_nothing_is_left_open(path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    context: zmq.Context[Any] = zmq.Context()
    receiver = ZmqReceiver(context, path, ToScheduler)
    sender = ZmqSender(context, path, ToScheduler, blocks=True)
    sender.send(StopRequest(rid="x"))
    next_of(receiver)
    sender.close()
    receiver.close()
    context.destroy(linger=0)
    assert set(os.listdir("/proc/self/fd")) == before
