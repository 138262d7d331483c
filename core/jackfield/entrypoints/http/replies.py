"""From what a handler returns to what goes over the wire. Knows no route and no protocol but HTTP's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

import msgspec
from starlette.types import Send

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.sse import event
from jackfield.hookspecs import RouteAnswer, RouteStream

Next = Callable[[AsyncGenerator[bytes, None]], Awaitable[bytes | None]]
"""Gives the next chunk; None: there are no more."""

_encoder = msgspec.json.Encoder()


def headers_of(values: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in values.items()]


async def send_answer(answer: RouteAnswer, send: Send) -> None:
    # The server leaves the body away where the client sent HEAD.
    body = answer.body if isinstance(answer.body, bytes) else _encoder.encode(answer.body)
    headers = [
        (b"content-type", answer.media_type.encode("latin-1")),
        (b"content-length", str(len(body)).encode("ascii")),
    ]
    await send(
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [*headers, *headers_of(answer.headers)],
        }
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def send_stream(
    stream: RouteStream,
    send: Send,
    *,
    following: Next,
    closing: Callable[[AsyncGenerator[bytes, None]], Awaitable[None]],
    told: Callable[[Exception], ApiError],
) -> None:
    """following, closing: how the generator's next chunk is had, and how it is ended; told: what is said of an error of it."""
    try:
        kind = stream.media_type
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (
                        b"content-type",
                        (f"{kind}; charset=utf-8" if kind.startswith("text/") else kind).encode("latin-1"),
                    ),
                    (b"cache-control", b"no-cache"),
                    (b"x-accel-buffering", b"no"),
                    *headers_of(stream.headers),
                ],
            }
        )
        try:
            while (chunk := await following(stream.chunks)) is not None:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except Exception as error:
            problem = told(error)
            last = event(problem.body) if stream.last_words is None else stream.last_words(problem)
            await send({"type": "http.response.body", "body": last, "more_body": True})
    finally:
        await closing(stream.chunks)
    await send({"type": "http.response.body", "body": b"", "more_body": False})
