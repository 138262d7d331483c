"""What arrives at a socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from statsd_sink.options import StatsdOptions
from statsd_sink.sink import StatsdSink

from jackfield.hookspecs import Metric, Sample

METRICS = (
    Metric(name="requests_total", type="counter", help="h", labels=("reason",)),
    Metric(name="running", type="gauge", help="h"),
    Metric(name="latency_seconds", type="histogram", help="h", unit="seconds", buckets=(0.1, 1.0)),
    Metric(name="prompt_tokens", type="histogram", help="h", unit="tokens", buckets=(10.0,)),
)


@pytest.fixture
def daemon() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(30)
        yield receiver


def sink(daemon: socket.socket, labels: Any = (), **options: Any) -> StatsdSink:
    made = StatsdSink(StatsdOptions(port=daemon.getsockname()[1], **options), "jackfield_", labels)
    made.declare(METRICS)
    return made


def test_every_type_of_metric(daemon: socket.socket) -> None:
    ours = sink(daemon, (("model", "a:b"),))
    ours.record(
        [
            Sample(name="requests_total", value=2, labels=(("reason", "stop"),)),
            Sample(name="running", value=-3),
            Sample(name="latency_seconds", value=0.25),
            Sample(name="prompt_tokens", value=17),
        ]
    )
    ours.close()
    assert daemon.recv(65535).decode().splitlines() == [
        "jackfield_requests_total:2|c|#model:a_b,reason:stop",
        "jackfield_running:0|g|#model:a_b",
        "jackfield_running:-3|g|#model:a_b",
        "jackfield_latency_seconds:250|ms|#model:a_b",
        "jackfield_prompt_tokens:17|h|#model:a_b",
    ]


def test_without_tags(daemon: socket.socket) -> None:
    ours = sink(daemon, (("model", "m"),), tags="none")
    ours.record([Sample(name="requests_total", value=1, labels=(("reason", "stop"),))])
    ours.close()
    assert daemon.recv(65535) == b"jackfield_requests_total:1|c"


def test_a_datagram_has_a_size(daemon: socket.socket) -> None:
    ours = sink(daemon, datagram_bytes=128)
    ours.record([Sample(name="running", value=number) for number in range(20)])
    ours.close()
    lines: list[bytes] = []
    while len(lines) < 20:
        datagram = daemon.recv(65535)
        assert len(datagram) <= 128
        lines += datagram.splitlines()
    assert lines == [f"jackfield_running:{number}|g".encode() for number in range(20)]
