"""An HTTP client for the routes of one plugin, as a server would serve them, over a runtime of the test's choice.

The application is the server's own: keys, bodies, errors and streams are what clients get. Nothing listens on a port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.http.app import App
from jackfield.entrypoints.http.routing.rules import OPEN_ROUTES
from jackfield.entrypoints.http.service import Service
from jackfield.entrypoints.plugin_routes import PluginRoutes
from jackfield.hookspecs import Route, Runtime
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter

PLUGIN = "routes.mine"


class RouteClient:
    """args: of the server. ledger: what the plugin did wrong. Use it within `async with`."""

    def __init__(self, routes: Sequence[Route], runtime: Runtime, **args: Any) -> None:
        self.ledger = FaultLedger()
        self.service = Service(ServerArgs(**args))
        self.service.status.up()
        self.app = App(self.service, [], complete=False, runtime=lambda exchange: runtime)
        self.app.add(
            [
                PluginRoutes(
                    key=PLUGIN,
                    described="the plugin",
                    features=frozenset({OPEN_ROUTES}),
                    routes=tuple(routes),
                    ledger=self.ledger,
                    meter=Meter(),
                )
            ]
        )
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app, raise_app_exceptions=False), base_url="http://localhost"
        )

    async def __aenter__(self) -> RouteClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()
        self.service.close()

    async def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        """more: as httpx takes it: json, content, headers, ..."""
        return await self._client.request(method, path, **more)

    async def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return await self.send("POST", path, json=body, **more)

    async def leave_after(self, path: str, body: Any, pieces: int) -> int:
        """POST, and close the connection once so many pieces of the answer came; how many there were."""
        came = 0
        gone = asyncio.Event()
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": msgspec.json.encode(body), "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal came
            if message["type"] == "http.response.body" and message.get("body"):
                came += 1
                if came >= pieces:
                    gone.set()
                    # As a socket that takes no more.
                    await asyncio.Event().wait()

        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        }
        with suppress(asyncio.CancelledError):
            await self.app(scope, receive, send)
        return came
