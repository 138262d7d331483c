"""Uvicorn's HTTP/1.1 protocol, with what it leaves out: a limit on how long a head may take, and errors in the shape of all
others. One instance a connection; knows no routes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import msgspec
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from jackfield.entrypoints.http.errors import ApiError


class Connection(h11.Connection):
    """h11's, with a short way for the chunks of a stream, each of which it would check as it does a head."""

    _chunked = False

    def send(self, event: Any) -> Any:
        if self._chunked and type(event) is h11.Data and self.our_state is h11.SEND_BODY:
            # An empty chunk would be the end.
            return b"%x\r\n%b\r\n" % (len(event.data), event.data) if event.data else b""
        sent = super().send(event)
        if isinstance(event, h11.Response):
            # Read from the head as it goes out, because h11 chooses: chunks are for HTTP/1.1 and for bodies without a length.
            self._chunked = b"\r\ntransfer-encoding: chunked\r\n" in (sent or b"").lower()
        return sent


class HttpProtocol(H11Protocol):
    """head_seconds: a connection that has not sent the whole head of its next request by then is closed: each holds a descriptor.
    Between two requests, as long as nothing was sent, uvicorn's own and shorter limit holds."""

    head_seconds = 60.0
    _head_timer: asyncio.TimerHandle | None = None

    def __init__(self, config: Config, *rest: Any, **more: Any) -> None:
        super().__init__(config, *rest, **more)
        most = config.h11_max_incomplete_event_size
        self.conn = Connection(h11.SERVER) if most is None else Connection(h11.SERVER, most)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        """The time runs from the first byte that is missed, not from the last that came."""
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._stop_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self._head_is_late)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        # It may have come out of what was read before, when the request in front of it had its answer.
        if self.conn.their_state is h11.IDLE:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP at all."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # An answer is under way already: nothing can be put between.
            self.transport.close()
            return
        error = ApiError(400, "the request is not valid HTTP, or its head is too long", code="invalid_http")
        body = msgspec.json.encode(error.body)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode("ascii")),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
