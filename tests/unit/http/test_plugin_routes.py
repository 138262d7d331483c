"""Routes of plugins: what a server will not start with, and what becomes of a handler that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.http.app import App
from jackfield.entrypoints.http.errors import INTERNAL
from jackfield.entrypoints.http.routing.rules import check_plugin_routes, overlap, route_problems
from jackfield.entrypoints.http.routing.table import ROUTES
from jackfield.entrypoints.http.service import Service
from jackfield.entrypoints.plugin_routes import PluginRoutes
from jackfield.hookspecs import Route, RouteAnswer, RouteError, RouteLevel, RouteRequest, RouteStream
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter

SECRET = "/home/secret"
KEY = "routes.mine"


class Body(BaseModel):
    x: int


async def echo(request: RouteRequest) -> RouteAnswer:
    return RouteAnswer(body={"path": dict(request.path), "query": dict(request.query), "label": request.label})


def route(handler: Any = echo, **more: Any) -> Route:
    fields: dict[str, Any] = {
        "path": "/mine",
        "methods": ("GET",),
        "level": RouteLevel.KEY,
        "summary": "Mine.",
        "answer": "an object",
    }
    return Route(**{**fields, "handler": handler, **more})


def table(*routes: Route, features: tuple[str, ...] = (), mode: Any = "count", name: str = "mine") -> PluginRoutes:
    return PluginRoutes(
        key=f"routes.{name}",
        described=f"routes plugin {name!r} (acme 1.0)",
        features=frozenset(features),
        routes=routes,
        ledger=FaultLedger(mode=mode),
        meter=Meter(),
    )


async def asked(
    plugin: PluginRoutes, method: str = "GET", path: str = "/mine", args: Any = None, **more: Any
) -> httpx.Response:
    service = Service(ServerArgs(**(args or {})))
    stopped: list[BaseException] = []
    service.on_stop = stopped.append
    app = App(service, complete=False)
    app.add([plugin])
    try:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.request(method, path, **more)
            answer.extensions["stopped"] = stopped
            return answer
    finally:
        service.close()


# what a server will not start with


def test_the_cores_own_routes_keep_the_rules() -> None:
    for one in ROUTES:
        assert list(route_problems(one, frozenset({"open_routes"}))) == [], one.path
    for i, one in enumerate(ROUTES):
        assert not [other.path for other in ROUTES[:i] if overlap(one.path, other.path)], one.path


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (route(path="mine"), "must begin with /"),
        (route(path="/mine//x"), "'' is no segment"),
        (route(path="/mine/"), "'' is no segment"),
        (route(path="/a{b}"), "'a{b}' is no segment"),
        (route(path="/{a}/{a}"), "two parameters have one name"),
        (route(path="/{a:path}/{b:path}"), "only one parameter"),
        (route(path="/ä"), "is no segment"),
        (route(methods=()), "methods must be of GET"),
        (route(methods=("OPTIONS",)), "methods must be of GET"),
        (route(methods=("get",)), "methods must be of GET"),
        (route(lambda request: None), "is not async"),
        (route(summary=" "), "it has no summary"),
        (route(answer=""), "nobody could know what comes"),
        (route(request=Body), "GET has no body"),
        (route(methods=("POST",), request=dict), "request must be a pydantic model"),
        (route(query={"x": ""}), "'x' is not explained"),
        (route(ceilings={"x": "max_mesages"}), "did you mean 'max_messages'"),
        (route(id_header="a b"), "no name of a header"),
        (route(level=RouteLevel.OPEN), "does not declare the feature 'open_routes'"),
    ],
)
def test_what_is_wrong_with_a_route_is_told_at_the_start(made: Route, said: str) -> None:
    with pytest.raises(ConfigurationError, match=r"routes plugin 'mine' \(acme 1.0\): the route") as refused:
        check_plugin_routes([table(made)])
    assert said in str(refused.value)


@pytest.mark.parametrize("more", [{"generates": True}, {"methods": ("POST",)}, {"methods": ("GET", "POST")}])
def test_an_open_route_only_reads(more: Any) -> None:
    opened = route(level=RouteLevel.OPEN)
    check_plugin_routes([table(opened, features=("open_routes",))])
    with pytest.raises(ConfigurationError, match="an open route may only be read"):
        check_plugin_routes([table(replace(opened, **more), features=("open_routes",))])


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("/a", "/a", True),
        ("/a", "/b", False),
        ("/a/{x}", "/a/b", True),
        ("/a/{x}", "/a", False),
        ("/a/{x}", "/{y}/b", True),
        ("/a/{x}", "/b/{y}", False),
        ("/a/{x:path}", "/a/b/c", True),
        ("/a/{x:path}", "/b/c", False),
        ("/a/{x:path}/why", "/a/b/why", True),
        ("/a/{x:path}/why", "/a/b/how", False),
        ("/{x:path}", "/a", True),
        ("/", "/a", False),
    ],
)
def test_paths_that_meet(one: str, other: str, meet: bool) -> None:
    assert (overlap(one, other), overlap(other, one)) == (meet, meet)


def test_two_who_answer_one_path_are_both_named() -> None:
    with pytest.raises(ConfigurationError, match=r"'mine'.*and Jackfield itself both answer /v1/models/x"):
        check_plugin_routes([table(route(path="/v1/models/x"))])
    tables = [table(route()), table(route(path="/mine/{any:path}"), name="other"), table(route(path="/mine/a"))]
    with pytest.raises(
        ConfigurationError, match=r"'mine'.*and.*'other'.*both answer /mine/a \(as /mine/\{any:path\}\)"
    ):
        check_plugin_routes(tables)
    with pytest.raises(ConfigurationError, match="both answer /mine"):
        check_plugin_routes([table(route(), route(methods=("POST",)))])


# what is served


async def test_a_handler_is_given_the_request() -> None:
    answer = await asked(table(route(path="/mine/{a}")), path="/mine/b?q=1", headers={"x-request-id": "me"})
    assert answer.json() == {"path": {"a": "b"}, "query": {"q": "1"}, "label": "me"}
    assert answer.headers["x-request-id"] == "me"
    assert "request-id" not in answer.headers


async def test_until_plugins_are_there_what_nobody_knows_is_not_yet_known() -> None:
    service = Service(ServerArgs())
    app = App(service, complete=False)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        early = await client.get("/mine")
        app.add([table(route())])
        late = await client.get("/mine")
        unknown = await client.get("/other")
    service.close()
    assert (early.status_code, late.status_code, unknown.status_code) == (503, 200, 404)
    assert early.headers["retry-after"] == "1"


async def test_b82_keys_guard_the_routes_of_plugins_too() -> None:
    keys = {"api_key": "k", "admin_api_key": "a"}
    for level, wanted in ((RouteLevel.KEY, (401, 200, 200)), (RouteLevel.ADMIN, (401, 403, 200))):
        plugin = table(route(level=level))
        given = [{}, {"authorization": "Bearer k"}, {"authorization": "Bearer a"}]
        found = [(await asked(plugin, args=keys, headers=headers)).status_code for headers in given]
        assert tuple(found) == wanted
    opened = table(route(level=RouteLevel.OPEN), features=("open_routes",))
    assert (await asked(opened, args=keys)).status_code == 200


async def test_errors_leave_in_the_protocols_own_shape() -> None:
    mine = route(
        methods=("POST",),
        request=Body,
        error_body=lambda error, label: {"mine": error.message, "status": error.status, "id": label},
        id_header="Request-Id",
    )
    bodies: list[dict[str, Any]] = [{"json": {}}, {"content": b"{"}, {"json": {"x": "y"}}]
    for more in bodies:
        answer = await asked(table(mine), "POST", **more)
        assert answer.status_code == 400
        assert answer.json()["status"] == 400
        assert answer.json()["id"] == answer.headers["x-request-id"] == answer.headers["request-id"]
    assert (await asked(table(mine))).json()["status"] == 405
    assert (await asked(table(mine), "POST", args={"api_key": "k"})).json()["status"] == 401


async def test_an_error_body_that_cannot_be_made_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    def broken(error: RouteError, label: str) -> Any:
        raise KeyError(SECRET)

    answer = await asked(table(route(methods=("POST",), request=Body, error_body=broken)), "POST", json={})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "x"
    assert SECRET in caplog.text


async def _raise(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    "error", [ValueError(SECRET), SystemExit(SECRET), KeyboardInterrupt(SECRET), asyncio.CancelledError(SECRET)]
)
async def test_whatever_a_handler_raises_ends_its_request_only(error: BaseException) -> None:
    async def handler(request: RouteRequest) -> RouteAnswer:
        if request.query:
            raise error
        return RouteAnswer(body=1)

    plugin = table(route(handler))
    answer = await asked(plugin, path="/mine?fail=1")
    assert answer.status_code == 500
    assert answer.json()["error"] == {
        "message": INTERNAL,
        "type": "server_error",
        "param": None,
        "code": "plugin_failed",
    }
    account = plugin.ledger.snapshot()[KEY]
    assert (account["count"], account["by_scope"], account["quarantined"]) == (1, {"request": 1}, False)
    assert plugin.meter.costs()[KEY]["handle"]["calls"] == 1
    assert (await asked(plugin)).json() == 1


async def test_an_error_meant_for_the_client_is_no_fault() -> None:
    plugin = table(route(lambda: None))
    refusing = replace(plugin.routes[0], handler=lambda request: _raise(RouteError(418, "short and stout", code="tea")))
    plugin = replace(plugin, routes=(refusing,))
    answer = await asked(plugin)
    assert (answer.status_code, answer.json()["error"]["code"]) == (418, "tea")
    assert plugin.ledger.snapshot() == {}
    assert plugin.meter.costs()[KEY]["handle"]["exceptions"] == 0


@pytest.mark.parametrize("made", [None, {"a": 1}, b"x"])
async def test_what_is_no_answer_is_a_fault(made: Any) -> None:
    async def handler(request: RouteRequest) -> Any:
        return made

    plugin = table(route(handler))
    assert (await asked(plugin)).status_code == 500
    assert "not a RouteAnswer" in plugin.ledger.snapshot()[KEY]["last"]


async def test_with_faults_that_raise_whoever_runs_the_server_is_told() -> None:
    plugin = table(route(lambda request: _raise(ValueError("no"))), mode="raise")
    answer = await asked(plugin)
    assert answer.status_code == 500
    (stop,) = answer.extensions["stopped"]
    assert "--plugin-faults is 'raise'" in str(stop)


def streaming(chunks: Callable[[], AsyncGenerator[Any, None]], **more: Any) -> Route:
    async def handler(request: RouteRequest) -> RouteStream:
        return RouteStream(chunks=chunks(), **more)

    return route(handler)


async def test_a_stream_that_fails_says_so_in_its_last_piece_and_is_closed() -> None:
    closed = []

    async def chunks() -> AsyncGenerator[bytes, None]:
        try:
            yield b"1\n"
            raise ValueError(SECRET)
        finally:
            closed.append(True)

    plugin = table(
        streaming(chunks, media_type="application/x-ndjson", last_words=lambda error: error.message.encode() + b"\n")
    )
    answer = await asked(plugin)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
    assert answer.text == f"1\n{INTERNAL}\n"
    assert closed == [True]
    assert plugin.ledger.snapshot()[KEY]["by_scope"] == {"request": 1}
    assert plugin.meter.costs()[KEY]["stream"]["calls"] == 3


async def test_a_piece_that_is_not_bytes_is_a_fault() -> None:
    async def chunks() -> AsyncGenerator[Any, None]:
        yield "text"

    plugin = table(streaming(chunks))
    answer = await asked(plugin)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert "plugin_failed" in answer.text
    assert "not bytes" in plugin.ledger.snapshot()[KEY]["last"]


async def test_a_handler_that_holds_the_event_loop_is_seen(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0

    async def handler(request: RouteRequest) -> RouteAnswer:
        nonlocal now
        now += 0.25
        await asyncio.sleep(0)
        now += 0.5
        return RouteAnswer(body=1)

    plugin = replace(table(route(handler)), meter=Meter(0.3, lambda: now))
    with caplog.at_level(logging.WARNING):
        assert (await asked(plugin)).status_code == 200
    assert plugin.meter.costs()[KEY]["handle"] == {"calls": 1, "seconds": 0.75, "exceptions": 0, "overruns": 1}
    assert "routes.mine: handle took 500.000 ms" in caplog.text
