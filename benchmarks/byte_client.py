"""A client of event streams that does next to nothing: it opens all streams at once, counts the events in the bytes as they
come, and notes when. A process of its own, so that its CPU can be told from the server's. Reads no JSON.

    python benchmarks/byte_client.py PORT STREAMS PATH BODY
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from typing import Any

DONE = b"data: [DONE]"


class Stream:
    """One answer. times: when bytes with events in them came, in seconds; events: how many so far."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(request)
        self.socket.setblocking(False)
        self.times: list[float] = []
        self.events = 0
        self.bytes = 0
        self._end = b""

    def read(self) -> bool:
        """False when the answer is complete. Raises RuntimeError for anything but an answer."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise RuntimeError(f"a stream broke off after {self.events} events: {self._end!r}")
        if not self.bytes and not data.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(data[:2000].decode("latin-1"))
        self.bytes += len(data)
        # One byte short of the mark is looked at again, so no mark is missed or counts twice.
        found = (self._end[-5:] + data).count(b"data: ")
        if found:
            self.times.append(time.monotonic())
            self.events += found
        self._end = (self._end + data)[-64:]
        return DONE not in self._end


def measure(port: int, streams: int, path: str, body: str) -> dict[str, Any]:
    """seconds: from the first event to the last of all; gaps: between two arrivals of one stream, in ms, sorted."""
    payload = body.encode()
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
    opened = [Stream(port, head.encode() + payload) for _ in range(streams)]
    selector = selectors.DefaultSelector()
    for stream in opened:
        selector.register(stream.socket, selectors.EVENT_READ, stream)
    cpu = time.process_time()
    while selector.get_map():
        for key, _ in selector.select():
            if not key.data.read():
                selector.unregister(key.fileobj)
                key.data.socket.close()
    cpu = time.process_time() - cpu
    first = min(stream.times[0] for stream in opened)
    last = max(stream.times[-1] for stream in opened)
    gaps = sorted(1000 * (b - a) for one in opened for a, b in zip(one.times, one.times[1:], strict=False))
    return {
        "seconds": last - first,
        "client_cpu_seconds": cpu,
        "events": sum(stream.events for stream in opened),
        "bytes": sum(stream.bytes for stream in opened),
        "gap_ms": {"p50": gaps[len(gaps) // 2], "p99": gaps[len(gaps) * 99 // 100], "max": gaps[-1]},
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])))
