"""The routes of one server as it looks them up: the core's and those of plugins, each with whose it is.

What a plugin's code does wrong is booked here, and reaches no further than its request.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.routing import compile_path

from jackfield.entrypoints.http.errors import ApiError, unavailable
from jackfield.entrypoints.http.exchange import Exchange, Reply
from jackfield.entrypoints.http.runtime import ServedRuntime
from jackfield.entrypoints.plugin_routes import PluginRoutes, RouteFault
from jackfield.hookspecs import Route, RouteAnswer, RouteRequest, RouteStream, Runtime

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """A route, the pattern of its path, and the plugin whose it is; None: the core's."""

    route: Route
    pattern: re.Pattern[str]
    runtime: Callable[[Exchange], Runtime]
    owner: PluginRoutes | None = None

    async def handle(self, exchange: Exchange) -> Reply:
        """Raises ApiError, RouteFault, and whatever the core's handlers raise."""
        if self.owner is None:
            reply: Reply = await self.route.handler(exchange)
            return reply
        request = RouteRequest(
            runtime=self.runtime(exchange),
            body=exchange.body,
            path=exchange.path,
            query=exchange.query,
            headers=exchange.headers,
            label=exchange.label,
            method=exchange.method,
        )
        made = await self.owner.watched("handle", _called(self.route, request))
        if not isinstance(made, RouteAnswer | RouteStream):
            return await self.owner.watched("handle", _not_an_answer(made))
        return made

    async def following(self, chunks: AsyncGenerator[bytes, None]) -> bytes | None:
        """The next chunk of a stream; None: it is over."""
        if self.owner is None:
            return await anext(chunks, None)
        return await self.owner.watched("stream", _next(chunks))

    async def closing(self, chunks: AsyncGenerator[bytes, None]) -> None:
        if self.owner is None:
            await chunks.aclose()
            return
        try:
            await self.owner.watched("stream", _close(chunks))
        except RouteFault:
            log.debug("a stream of %s failed while it was closed", self.owner.key)

    def error_body(self, error: ApiError, label: str) -> Any:
        """In the protocol's own shape."""
        if self.route.error_body is None:
            return error.body
        try:
            return self.route.error_body(error, label)
        except Exception:
            log.exception("the error body of %s could not be made", self.route.path)
            return error.body


class Entries:
    """Changed once, when the plugins are there; read by every request."""

    def __init__(
        self, routes: Sequence[Route], *, complete: bool = True, runtime: Callable[[Exchange], Runtime] = ServedRuntime
    ) -> None:
        """complete: no plugin's routes are to come. runtime: what plugins' handlers get."""
        self._runtime = runtime
        self._all: list[Entry] = [Entry(route, _pattern(route), runtime) for route in routes]
        self.complete = complete

    def add(self, plugins: Sequence[PluginRoutes]) -> None:
        """All plugins' routes, checked before by `route_rules.check_routes`."""
        self._all += [
            Entry(route, _pattern(route), self._runtime, plugin) for plugin in plugins for route in plugin.routes
        ]
        self.complete = True

    @property
    def routes(self) -> tuple[Route, ...]:
        return tuple(entry.route for entry in self._all)

    def of_path(self, path: str) -> tuple[Entry, dict[str, str]] | None:
        """The one entry whose path this is, with the path's parameters."""
        for entry in self._all:
            if (found := entry.pattern.fullmatch(path)) is not None:
                return entry, found.groupdict()
        return None

    def find(self, path: str, method: str) -> tuple[Entry, dict[str, str]]:
        """Raises ApiError 404 or 405; 503 as long as plugins are to come."""
        found = self.of_path(path)
        if found is None and not self.complete:
            raise unavailable("the server is starting, and a plugin may bring this route", "starting")
        if found is None:
            raise ApiError(404, f"there is no route {path[:200]!r}", code="unknown_route")
        route = found[0].route
        if method in route.methods or (method == "HEAD" and "GET" in route.methods):
            return found
        allowed = ", ".join(route.methods)
        raise ApiError(
            405,
            f"{route.path} answers {allowed}, not {method[:20]}",
            code="method_not_allowed",
            headers={"allow": allowed},
        )


def _pattern(route: Route) -> re.Pattern[str]:
    return compile_path(route.path)[0]


async def _called(route: Route, request: Any) -> Any:
    made = route.handler(request)
    return await made if inspect.isawaitable(made) else made


async def _not_an_answer(made: Any) -> Reply:
    raise TypeError(f"the handler returned {type(made).__name__}, not a RouteAnswer or a RouteStream")


async def _next(chunks: AsyncGenerator[bytes, None]) -> bytes | None:
    chunk = await anext(chunks, None)
    if chunk is not None and not isinstance(chunk, bytes):
        raise TypeError(f"a stream gave {type(chunk).__name__}, not bytes")
    return chunk


async def _close(chunks: AsyncGenerator[bytes, None]) -> None:
    await chunks.aclose()
