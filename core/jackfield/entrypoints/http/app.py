"""The ASGI application: from a scope to a handler of the route table and back, with everything that routes have in common.

In this order: head, request id, host, origin, key, route, state of the server, ceilings, body. All of it looks at
`scope["path"]`, which is what was matched; nothing is rebuilt from headers. When the client goes away, the handler's task is
cancelled, and the handlers end their requests when that happens. At the end the request is counted, and logged if that was
asked for.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.types import Message, Receive, Scope, Send

from jackfield.entrypoints.http.errors import ApiError, api_error
from jackfield.entrypoints.http.exchange import Exchange
from jackfield.entrypoints.http.guards.body import ClientGone, parse_json, read_body
from jackfield.entrypoints.http.guards.cors import Headers
from jackfield.entrypoints.http.guards.tasks import check_route
from jackfield.entrypoints.http.replies import send_answer, send_stream
from jackfield.entrypoints.http.request_log import Ended, RequestLog
from jackfield.entrypoints.http.routing.entries import Entries, Entry
from jackfield.entrypoints.http.routing.table import DEFAULT_LEVEL, ROUTES
from jackfield.entrypoints.http.runtime import ServedRuntime
from jackfield.entrypoints.http.service import Service
from jackfield.entrypoints.plugin_routes import PluginRoutes
from jackfield.hookspecs import Route, RouteAnswer, RouteLevel, Runtime
from jackfield.stack.errors import PluginStop

log = logging.getLogger(__name__)

_LABEL = re.compile(r"[!-~]+")


class App:
    """routes: the core's own; those of plugins come with `add`, once the replica that has loaded them is up."""

    def __init__(
        self,
        service: Service,
        routes: Sequence[Route] = ROUTES,
        *,
        complete: bool = True,
        runtime: Callable[[Exchange], Runtime] = ServedRuntime,
    ) -> None:
        """complete: nothing comes by `add`. runtime: what the handlers of plugins get."""
        self.service = service
        self.entries = Entries(routes, complete=complete, runtime=runtime)
        self._log = RequestLog.of(service.args)

    def add(self, plugins: Sequence[PluginRoutes]) -> None:
        """The routes of plugins, of which `route_rules.check_plugin_routes` found nothing wrong."""
        self.entries.add(plugins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"this application answers http only, not {scope['type']}")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = headers.get("x-request-id", "")
        answer = _Answer(send, uuid.uuid4().hex)
        exchange: Exchange | None = None
        try:
            self._check_head(scope)
            found = self.entries.of_path(scope["path"])
            answer.entry = None if found is None else found[0]
            self._check_label(given)
            answer.label = given or answer.label
            self.service.hosts.check(headers)
            level = DEFAULT_LEVEL if found is None else found[0].route.level
            answer.headers = self.service.cors.headers(headers, admin=level is RouteLevel.ADMIN)
            allowed = self.service.cors.preflight(scope["method"], headers, admin=level is RouteLevel.ADMIN)
            if allowed is not None:
                answer.headers += allowed
                await answer.send({"type": "http.response.start", "status": 204, "headers": []})
                await answer.send({"type": "http.response.body", "body": b""})
                return
            self.service.keys.check(level, scope["headers"])
            entry, path = self.entries.find(scope["path"], scope["method"])
            exchange = Exchange(
                service=self.service,
                route=entry.route,
                routes=self.entries.routes,
                path=path,
                query=_query(scope["query_string"], self.service.args.max_query_fields),
                headers=headers,
                label=answer.label,
                method=scope["method"],
            )
        except Exception as error:
            await answer.refuse(scope, api_error(error))
            self._ended(scope, answer, None, None)
            return
        try:
            await self._handle(entry, exchange, scope, receive, answer)
        finally:
            self._ended(scope, answer, entry.route, exchange)

    async def _handle(self, entry: Entry, exchange: Exchange, scope: Scope, receive: Receive, answer: _Answer) -> None:
        route, entered = entry.route, False
        args = self.service.args
        try:
            if route.generates:
                self.service.enter()
                entered = True
                check_route(route, self.service)
            if route.request is not None and exchange.method not in ("GET", "HEAD"):
                body = await read_body(exchange.headers, receive, args.max_request_bytes, args.receive_timeout)
                # A long body is parsed on a thread, so that streams of other clients do not wait for it.
                make = self._parse
                if len(body) > INLINE_BYTES:
                    exchange.body = await self.service.in_thread(lambda: make(route, exchange.headers, body))
                else:
                    exchange.body = make(route, exchange.headers, body)
            await _unless_gone(receive, self._respond(entry, exchange, answer))
        except ClientGone:
            answer.gone = True
            log.debug("request %s: the client has gone", exchange.label)
        except Exception as error:
            await answer.refuse(scope, self._told(exchange, error))
        finally:
            if entry.owner is not None:
                # Whatever a plugin left open ends with the request.
                for call in exchange.calls:
                    if not call.closed:
                        call.orphan()
            if entered:
                self.service.leave()

    async def _respond(self, entry: Entry, exchange: Exchange, answer: _Answer) -> None:
        reply = await entry.handle(exchange)
        if isinstance(reply, RouteAnswer):
            await send_answer(reply, answer.send)
            return
        await send_stream(
            reply,
            answer.send,
            following=entry.following,
            closing=entry.closing,
            told=lambda error: answer.broken_off(self._told(exchange, error)),
        )

    def _told(self, exchange: Exchange, error: Exception) -> ApiError:
        """What the client hears of it."""
        if isinstance(error, PluginStop):  # --plugin-faults raise
            self.service.stop(error)
        return api_error(error, exchange.names)

    def _ended(self, scope: Scope, answer: _Answer, route: Route | None, exchange: Exchange | None) -> None:
        monitor, path = self.service.monitor, None if route is None else route.path
        body = None if exchange is None else exchange.body
        if monitor is not None and answer.status:
            monitor.http_request(path, scope["method"], answer.status, getattr(body, "model", None))
        if self._log is not None:
            client = scope.get("client")
            self._log.tell(
                Ended(
                    call_id=answer.label,
                    method=scope["method"],
                    path=scope["path"],
                    client=None if client is None else f"{client[0]}:{client[1]}",
                    route=path if answer.entry is None else answer.entry.route.path,
                    status=answer.status,
                    code=answer.code,
                    client_gone=answer.gone,
                    duration_s=time.monotonic() - answer.began,
                    started_s=None if answer.started is None else answer.started - answer.began,
                    body=body,
                    calls=[] if exchange is None else exchange.calls,
                )
            )

    def _parse(self, route: Route, headers: Mapping[str, str], body: bytes) -> Any:
        assert route.request is not None
        args = self.service.args
        value = parse_json(headers, body, args.max_json_depth, args.max_json_values)
        # Before the model is made of it, which takes far more memory than the JSON.
        for name, ceiling in route.ceilings.items():
            most = getattr(args, ceiling)
            if isinstance(value.get(name), list) and len(value[name]) > most:
                count = len(value[name])
                flag = "--" + ceiling.replace("_", "-")
                raise ApiError(400, f"{name} holds {count} entries; at most {most} are allowed ({flag})", param=name)
        return route.request.model_validate(value)

    def _check_head(self, scope: Scope) -> None:
        # The parser looks at the length of a head that it waits for the end of, not of one that came in one piece.
        most = self.service.args.max_header_bytes
        path = scope.get("raw_path") or scope["path"].encode()
        length = (
            len(path) + len(scope["query_string"]) + sum(len(name) + len(value) for name, value in scope["headers"])
        )
        if length > most:
            raise ApiError(
                400, f"the head of the request may have at most {most} bytes (--max-header-bytes)", code="head_too_long"
            )

    def _check_label(self, label: str) -> None:
        longest = self.service.args.max_request_id_length
        if label and (len(label) > longest or not _LABEL.fullmatch(label)):
            raise ApiError(
                400,
                f"X-Request-Id has at most {longest} visible ASCII characters (--max-request-id-length)",
                param="X-Request-Id",
                code="invalid_value",
            )


def _query(text: bytes, most: int) -> dict[str, str]:
    try:
        return dict(parse_qsl(text.decode("latin-1"), max_num_fields=most))
    except ValueError:
        raise ApiError(
            400, f"the query may have at most {most} fields (--max-query-fields)", code="invalid_value"
        ) from None


INLINE_BYTES = 64 * 2**10
"""A body up to this is parsed on the event loop, in well under a millisecond."""


class _Answer:
    """The sending side of one request: adds the request id, and knows the status that was sent; 0: none yet.

    headers       of every answer to this request
    code          of the error that was told, in the stream if it had begun; gone: the client went away
    began, started   when the request came, and when its answer's status was sent; monotonic seconds
    """

    def __init__(self, send: Send, label: str) -> None:
        self.label = label
        self.status = 0
        self.code: str | None = None
        self.gone = False
        self.headers: Headers = []
        self.entry: Entry | None = None
        self.began = time.monotonic()
        self.started: float | None = None
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.started = time.monotonic()
            label = self.label.encode("ascii")
            headers = [*message.get("headers", []), (b"x-request-id", label), *self.headers]
            if self.entry is not None and self.entry.route.id_header:
                headers.append((self.entry.route.id_header.lower().encode("ascii"), label))
            message = {**message, "headers": headers}
        await self._send(message)

    def broken_off(self, error: ApiError) -> ApiError:
        """The error that ends the stream."""
        self.code = error.code
        return error

    async def refuse(self, scope: Scope, error: ApiError) -> None:
        self.code = error.code
        if error.status >= 500 and error.status != 503:
            log.error("request %s (%s %s) ends with %d", self.label, scope["method"], scope["path"], error.status)
        if self.status:
            # The connection is of no use any more; the client sees it close in the middle of an answer.
            raise error
        body = error.body if self.entry is None else self.entry.error_body(error, self.label)
        await send_answer(RouteAnswer(body=body, status=error.status, headers=error.headers), self.send)


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
