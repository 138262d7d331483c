"""An OpenAI server whose every byte is scripted, and a clock that moves only when it sends: figures of a client are then exact.

The clock stands still until the client has looked at it, so that what was sent "at 0.5 s" is stamped so, however slow the
machine.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DEADLINE = 120.0
"""Seconds after which a test gives up. Generous: it is no measurement."""

Piece = tuple[float, bytes]
"""Seconds since what came before, and bytes."""


class Clock:
    """`time.perf_counter` for the client."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._looks = 0
        self._looked = threading.Condition()

    def __call__(self) -> float:
        with self._looked:
            self._looks += 1
            self._looked.notify_all()
            return self.now

    @contextmanager
    def moved(self, seconds: float) -> Iterator[None]:
        """Moves on, and waits behind the block until the client has looked."""
        with self._looked:
            self.now += seconds
            before = self._looks
        yield
        with self._looked:
            assert self._looked.wait_for(lambda: self._looks > before, DEADLINE), "the client did not look at its clock"


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # of 16 streams that open at once, none is turned away


class Answer:
    """What a request gets. end: seconds after the last piece; reset: the connection is cut instead; silent: nothing comes until
    the client has gone."""

    def __init__(
        self, *pieces: Piece, end: float = 0.0, status: int = 200, reset: bool = False, silent: bool = False
    ) -> None:
        self.pieces, self.end, self.status, self.reset, self.silent = pieces, end, status, reset, silent


class Endpoint:
    """answer: number of a POST to a route of the model, its body -> what it gets; others: path -> JSON, or a function of the
    body."""

    def __init__(self, clock: Clock | None, answer: Callable[[int, Any], Answer], others: dict[str, Any]) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._clock, self._answer = clock, answer
        self._others = {"/v1/models": {"data": [{"id": "scripted"}]}, **others}
        self._lock = threading.Lock()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._json(endpoint._others.get(self.path))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])) or "null")
                if self.path in endpoint._others:
                    other = endpoint._others[self.path]
                    self._json(other(body) if callable(other) else other)
                    return
                with endpoint._lock:
                    number = len(endpoint.asked)
                    endpoint.asked.append((self.path, body))
                    endpoint.headers.append({name.lower(): value for name, value in self.headers.items()})
                endpoint._send(self, endpoint._answer(number, body))

            def _json(self, told: Any) -> None:
                data = json.dumps(told).encode()
                self.send_response(404 if told is None else 200)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = Listener(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> Endpoint:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _send(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        if answer.silent:
            handler.rfile.read(1)
            handler.close_connection = True
            return
        handler.send_response(answer.status)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        for seconds, data in answer.pieces:
            self._write(handler, seconds, b"%x\r\n%s\r\n" % (len(data), data))
        if answer.reset:
            handler.close_connection = True
        else:
            self._write(handler, answer.end, b"0\r\n\r\n")

    def _write(self, handler: BaseHTTPRequestHandler, seconds: float, data: bytes) -> None:
        if self._clock is None:
            handler.wfile.write(data)
            return
        with self._clock.moved(seconds):
            handler.wfile.write(data)


def chunk(text: str, tokens: int | None = None, finish: str | None = None) -> bytes:
    """An event of /v1/completions."""
    told: dict[str, Any] = {"choices": [{"index": 0, "text": text, "finish_reason": finish}]}
    if tokens is not None:
        told["usage"] = {"prompt_tokens": 5, "completion_tokens": tokens}
    return b"data: " + json.dumps(told).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def answered(times: Sequence[float]) -> Answer:
    """A token at each of the times, each so many seconds after the one before."""
    last = len(times)
    return Answer(
        *(
            (seconds, chunk("x", number, "length" if number == last else None))
            for number, seconds in enumerate(times, 1)
        ),
        (0.0, DONE),
    )
