"""How long a client may take with the head of a request (B85)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from jackfield.entrypoints.http.protocol import HttpProtocol

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[int]:
    """The port of a server with this protocol."""
    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: HttpProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with server:
        yield server.sockets[0].getsockname()[1]


async def connect(port: int, data: bytes) -> Streams:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    return reader, writer


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpProtocol, "head_seconds", 0.05)


@pytest.mark.parametrize("sent", [b"", b"G", REQUEST[:-2]])
async def test_b85_a_connection_without_a_whole_head_is_closed(sent: bytes) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("there is no request")

    async with listening(app) as port:
        reader, writer = await connect(port, sent)
        assert await reader.read() == b""
        writer.close()


async def test_b85_a_request_that_is_under_way_has_all_the_time() -> None:
    """It is answered only after a connection that is younger was closed; the next head is waited for anew."""
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async with listening(app) as port:
        reader, writer = await connect(port, REQUEST)
        late, unused = await connect(port, REQUEST[:10])
        assert await late.read() == b""
        go_on.set()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 ")
        writer.write(REQUEST)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 ")
        writer.write(REQUEST[:10])
        assert await reader.read() == b""
        for each in (writer, unused):
            each.close()
