"""Every route that an installation can serve, the core's and those of all installed plugins of kind `routes`: what a test walks
over is there as soon as somebody adds it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.http.app import App
from jackfield.entrypoints.http.routing.table import ROUTES
from jackfield.entrypoints.http.service import Service
from jackfield.entrypoints.plugin_routes import PluginRoutes, plugin_routes
from jackfield.hookspecs import Route
from jackfield.stack.discovery.scan import discover
from jackfield.stack.loading.load import INLINE, load_stack
from jackfield.stack.resolved import ResolvedStack
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter
from jackfield.stack.selection.single import select_one


@dataclass(frozen=True)
class Walked:
    """table: of the plugin whose route it is; None: the core's."""

    route: Route
    table: PluginRoutes | None

    @property
    def path(self) -> str:
        """One that the route matches."""
        return re.sub(r"\{[^}]*\}", "some", self.route.path)

    def app(self, args: ServerArgs) -> App:
        app = App(Service(args), complete=self.table is None)
        if self.table is not None:
            app.add([self.table])
        return app

    async def ask(
        self, args: ServerArgs, method: str, path: str = "", *, up: bool = False, **more: Any
    ) -> httpx.Response:
        """What the application answers without a replica: 503 or 4xx past the keys. up: it takes requests, and then has nobody
        to hand them to."""
        app = self.app(args)
        if up:
            app.service.status.up()
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(method, path or self.path, **more)
        finally:
            app.service.close()


def installed_tables() -> Iterator[PluginRoutes]:
    catalogue = discover()
    for row in sorted(catalogue.rows("routes"), key=lambda row: row.name):
        stack = ResolvedStack(plugins=(select_one(catalogue, "routes", row.name, {}),))
        yield from plugin_routes(load_stack(stack, INLINE), FaultLedger(), Meter(), lambda tables: None)


ALL = [
    *(Walked(route, None) for route in ROUTES),
    *(Walked(route, table) for table in installed_tables() for route in table.routes),
]

EVERY_ROUTE = [pytest.param(one, id=one.route.path) for one in ALL]
EVERY_METHOD = [
    pytest.param(one, method, id=f"{method} {one.route.path}") for one in ALL for method in one.route.methods
]
