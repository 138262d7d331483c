"""The ASGI application: from a scope to a handler of the route table and back, with everything that routes have in common.

In this order: request id, host, key, route, state of the server, ceilings, body. All of it looks at `scope["path"]`, which is
what was matched; nothing is rebuilt from headers. When the client goes away, the handler's task is cancelled, and the handlers
end their requests when that happens.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jackfield.entrypoints.http.body import ClientGone, parse_json, read_body
from jackfield.entrypoints.http.errors import ApiError, api_error
from jackfield.entrypoints.http.exchange import Exchange, json_response
from jackfield.entrypoints.http.route_table import DEFAULT_LEVEL, ROUTES, HttpRoute
from jackfield.entrypoints.http.service import Service

log = logging.getLogger(__name__)

_LABEL = re.compile(r"[!-~]+")


class App:
    def __init__(self, service: Service, routes: Sequence[HttpRoute] = ROUTES) -> None:
        self.service = service
        self._routes = [(compile_path(route.path)[0], route) for route in routes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"this application answers http only, not {scope['type']}")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = headers.get("x-request-id", "")
        answer = _Answer(send, uuid.uuid4().hex)
        try:
            self._check_head(scope)
            self._check_label(given)
            answer.label = given or answer.label
            self.service.hosts.check(headers)
            self.service.keys.check(self._level(scope["path"]), scope["headers"])
            route, path = self._find(scope["path"], scope["method"])
            exchange = Exchange(
                service=self.service,
                body=None,
                path=path,
                query=_query(scope["query_string"]),
                headers=headers,
                label=answer.label,
                method=scope["method"],
            )
        except Exception as error:
            await answer.refuse(scope, receive, api_error(error))
            self._count(scope, answer, None, None)
            return
        try:
            await self._handle(route, exchange, scope, receive, answer)
        finally:
            self._count(scope, answer, route, exchange.body)

    async def _handle(
        self, route: HttpRoute, exchange: Exchange, scope: Scope, receive: Receive, answer: _Answer
    ) -> None:
        entered = False
        try:
            if route.generates:
                self.service.enter()
                entered = True
            if route.request is not None and exchange.method not in ("GET", "HEAD"):
                body = await read_body(exchange.headers, receive, self.service.args.max_request_bytes)
                # A long body is parsed on a thread, so that streams of other clients do not wait for it.
                make = self._parse
                if len(body) > INLINE_BYTES:
                    exchange.body = await self.service.in_thread(lambda: make(route, exchange.headers, body))
                else:
                    exchange.body = make(route, exchange.headers, body)
            await _unless_gone(receive, self._respond(route, exchange, scope, receive, answer))
        except ClientGone:
            log.debug("request %s: the client has gone", exchange.label)
        except Exception as error:
            await answer.refuse(scope, receive, api_error(error, exchange.names))
        finally:
            if entered:
                self.service.leave()

    async def _respond(
        self, route: HttpRoute, exchange: Exchange, scope: Scope, receive: Receive, answer: _Answer
    ) -> None:
        response: ASGIApp = await route.handler(exchange)
        await response(scope, receive, answer.send)

    def _count(self, scope: Scope, answer: _Answer, route: HttpRoute | None, body: Any) -> None:
        monitor = self.service.monitor
        if monitor is not None and answer.status:
            named = getattr(body, "model", None)
            monitor.http_request(None if route is None else route.path, scope["method"], answer.status, named)

    def _parse(self, route: HttpRoute, headers: Mapping[str, str], body: bytes) -> Any:
        assert route.request is not None
        args = self.service.args
        value = parse_json(headers, body, args.max_json_depth)
        # Before the model is made of it, which takes far more memory than the JSON.
        for name, ceiling in route.ceilings.items():
            most = getattr(args, ceiling)
            if isinstance(value.get(name), list) and len(value[name]) > most:
                count = len(value[name])
                raise ApiError(400, f"{name} holds {count} entries; at most {most} are allowed", param=name)
        return route.request.model_validate(value)

    def _check_head(self, scope: Scope) -> None:
        # The parser looks at the length of a head that it waits for the end of, not of one that came in one piece.
        most = self.service.args.max_header_bytes
        path = scope.get("raw_path") or scope["path"].encode()
        length = (
            len(path) + len(scope["query_string"]) + sum(len(name) + len(value) for name, value in scope["headers"])
        )
        if length > most:
            raise ApiError(400, f"the head of the request may have at most {most} bytes", code="head_too_long")

    def _check_label(self, label: str) -> None:
        longest = self.service.args.max_request_id_length
        if label and (len(label) > longest or not _LABEL.fullmatch(label)):
            raise ApiError(
                400,
                f"X-Request-Id has at most {longest} visible ASCII characters",
                param="X-Request-Id",
                code="invalid_value",
            )

    def _level(self, path: str) -> Any:
        return next((route.level for pattern, route in self._routes if pattern.fullmatch(path)), DEFAULT_LEVEL)

    def _find(self, path: str, method: str) -> tuple[HttpRoute, dict[str, str]]:
        for pattern, route in self._routes:
            if (found := pattern.fullmatch(path)) is None:
                continue
            if method in route.methods or (method == "HEAD" and "GET" in route.methods):
                return route, found.groupdict()
            allowed = ", ".join(route.methods)
            raise ApiError(
                405,
                f"{route.path} answers {allowed}, not {method[:20]}",
                code="method_not_allowed",
                headers={"allow": allowed},
            )
        raise ApiError(404, f"there is no route {path[:200]!r}", code="unknown_route")


def _query(text: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(text.decode("latin-1"), max_num_fields=MAX_QUERY_FIELDS))
    except ValueError:
        raise ApiError(400, f"the query may have at most {MAX_QUERY_FIELDS} fields", code="invalid_value") from None


MAX_QUERY_FIELDS = 100

INLINE_BYTES = 64 * 2**10
"""A body up to this is parsed on the event loop, in well under a millisecond."""


class _Answer:
    """The sending side of one request: adds the request id, and knows the status that was sent; 0: none yet."""

    def __init__(self, send: Send, label: str) -> None:
        self.label = label
        self.status = 0
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", []), (b"x-request-id", self.label.encode("ascii"))]
            message = {**message, "headers": headers}
        await self._send(message)

    async def refuse(self, scope: Scope, receive: Receive, error: ApiError) -> None:
        if error.status >= 500 and error.status != 503:
            log.error("request %s (%s %s) ends with %d", self.label, scope["method"], scope["path"], error.status)
        if self.status:
            # The connection is of no use any more; the client sees it close in the middle of an answer.
            raise error
        await json_response(error.body, error.status, error.headers)(scope, receive, self.send)


async def _unless_gone(receive: Receive, work: Any) -> None:
    """Run `work`; cancel it when the client closes the connection. Raises ClientGone then, else what `work` raises."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        task.result()
    finally:
        watch.cancel()
        if not task.done():
            task.cancel()
        await asyncio.wait((task, watch))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
