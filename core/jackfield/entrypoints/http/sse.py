"""Server-sent events, as the OpenAI and SGLang clients read them: `data: JSON`, an empty line, and `data: [DONE]` last."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from jackfield.entrypoints.http.errors import api_error

DONE = b"data: [DONE]\n\n"

_encoder = msgspec.json.Encoder()


def event(value: Any) -> bytes:
    return b"data: " + _encoder.encode(value) + b"\n\n"


class EventStream:
    """An ASGI response over a generator of finished events. An error in it becomes the last event: the status has been sent.

    After an error there is no `[DONE]`: a client must not take the answer for complete.
    """

    def __init__(self, events: AsyncGenerator[bytes, None], headers: list[tuple[bytes, bytes]] | None = None) -> None:
        self.status_code = 200
        self._events = events
        self.headers = headers or []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [
                        (b"content-type", b"text/event-stream; charset=utf-8"),
                        (b"cache-control", b"no-cache"),
                        (b"x-accel-buffering", b"no"),
                        *self.headers,
                    ],
                }
            )
            try:
                async for chunk in self._events:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except Exception as error:
                await send({"type": "http.response.body", "body": event(api_error(error).body), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
