"""What the application does when a handler fails, before and after the first byte (B11 B20)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.calls import ReplicaFailed, ShutDown
from jackfield.entrypoints.http.app import App
from jackfield.entrypoints.http.errors import GONE, INTERNAL
from jackfield.entrypoints.http.exchange import Exchange
from jackfield.entrypoints.http.routing.table import ROUTES
from jackfield.entrypoints.http.service import CONTROL_THREADS, Service
from jackfield.entrypoints.http.sse import EventStream, event
from jackfield.hookspecs import Route
from jackfield.hookspecs import RouteLevel as Level
from jackfield.managers.errors import RequestError
from tests.e2e.http.servers import raw_events

SECRET = "/home/secret/weights"


def route(handler: Any, **more: Any) -> Route:
    return Route(path="/x", methods=("GET",), level=Level.OPEN, handler=handler, summary="", **more)


async def answer(handler: Any, **args: Any) -> httpx.Response:
    service = Service(ServerArgs(**args))
    try:
        transport = httpx.ASGITransport(App(service, [route(handler)]), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/x")
    finally:
        service.close()


@pytest.mark.parametrize(
    ("error", "message"), [(ValueError(SECRET), INTERNAL), (ReplicaFailed(SECRET), GONE), (KeyError("x"), INTERNAL)]
)
async def test_a_failure_is_told_in_fixed_words_and_logged_in_full(
    error: Exception, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(exchange: Exchange) -> Any:
        raise error

    with caplog.at_level(logging.ERROR):
        response = await answer(handler)
    assert response.status_code == 500
    assert response.json()["error"]["message"] == message
    assert response.json()["error"]["type"] == "server_error"
    assert SECRET not in response.text
    assert str(error).strip("'") in caplog.text
    assert response.headers["x-request-id"] in caplog.text


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError(SECRET), INTERNAL),
        (ReplicaFailed(SECRET), GONE),
        (RequestError("too hot", status_code=400), "too hot"),
    ],
)
async def test_after_the_first_byte_an_error_is_the_last_event_and_not_done(error: Exception, message: str) -> None:
    closed = []

    async def chunks() -> AsyncGenerator[bytes, None]:
        try:
            yield event({"n": 1})
            raise error
        finally:
            closed.append(True)

    async def handler(exchange: Exchange) -> Any:
        return EventStream(chunks())

    response = await answer(handler)
    assert response.status_code == 200
    first, last = raw_events(response.text)
    assert first == '{"n":1}'
    assert message in last
    assert SECRET not in last
    assert closed


async def test_a_request_id_is_echoed_as_a_label_only() -> None:
    async def handler(exchange: Exchange) -> Any:
        raise RequestError("no")

    service = Service(ServerArgs())
    transport = httpx.ASGITransport(App(service, [route(handler)]))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for _ in range(2):
            assert (await client.get("/x", headers={"x-request-id": "mine"})).headers["x-request-id"] == "mine"
        for bad in ("x" * 129, "two words", "tab\tbed"):
            refused = await client.get("/x", headers={"x-request-id": bad})
            assert refused.status_code == 400
            assert refused.json()["error"]["param"] == "X-Request-Id"
            assert refused.headers["x-request-id"] != bad
    service.close()


async def test_no_more_requests_at_once_than_allowed() -> None:
    service = Service(ServerArgs(max_concurrent_requests=1))
    service.status.up()
    inside: list[int] = []

    async def handler(exchange: Exchange) -> Any:
        inside.append((await client.get("/x")).status_code)
        raise RequestError("done")

    transport = httpx.ASGITransport(App(service, [route(handler, generates=True)]))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/x")).status_code == 400
        assert inside == [503]
        assert service.open_calls == 0
    service.close()


@pytest.mark.parametrize("phase", ["starting", "draining", "failed"])
async def test_no_generation_but_when_up(phase: str) -> None:
    service = Service(ServerArgs())
    if phase != "starting":
        service.status.up()
        service.status.drain() if phase == "draining" else service.status.fail()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(App(service)), base_url="http://localhost") as client:
        for made in (route for route in ROUTES if route.generates):
            refused = await client.post(made.path, json={})
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["code"] == phase
        assert (await client.get("/health")).status_code == 503
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/ping")).status_code == 200
    service.close()


async def test_health_tells_what_a_check_found() -> None:
    service = Service(ServerArgs())
    service.status.up()
    problem: list[str] = []
    service.status.checks.append(lambda: problem[0] if problem else None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(App(service)), base_url="http://localhost") as client:
        assert (await client.get("/health")).status_code == 200
        problem.append("no step for 30 s")
        told = await client.get("/health")
        assert told.status_code == 503
        assert told.json()["error"]["message"] == "no step for 30 s"
    service.close()


def test_the_table_has_no_two_routes_for_one_path() -> None:
    assert len({made.path for made in ROUTES}) == len(ROUTES)
    assert all(made.summary.endswith(".") for made in ROUTES)
    assert all(made.request is not None for made in ROUTES if made.generates)


async def get(path: str, **more: Any) -> httpx.Response:
    service = Service(ServerArgs(max_header_bytes=4096))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(App(service)), base_url="http://localhost") as client:
        answer = await client.get(path, **more)
    service.close()
    return answer


async def test_b85_a_long_head_that_comes_in_one_piece() -> None:
    """The parser refuses only a head whose end it has not seen yet."""
    for path, headers in [("/ping", {"x-pad": "y" * 4096}), ("/ping?" + "y" * 4096, {}), ("/" + "y" * 4096, {})]:
        refused = await get(path, headers=headers)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "head_too_long"
        assert len(refused.content) < 1000
    assert (await get("/ping", headers={"x-pad": "y" * 3000})).status_code == 200


@pytest.mark.parametrize("path", ["/ping%0A", "/health%0A", "/flush_cache%0A", "/ping/", "/ping%00"])
async def test_a_path_is_matched_to_its_very_end(path: str) -> None:
    refused = await get(path)
    assert refused.status_code == 404
    assert refused.json()["error"]["code"] == "unknown_route"


async def test_a_request_that_the_end_of_the_server_cut_off_is_no_fault_of_the_runtime(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(exchange: Exchange) -> Any:
        raise ShutDown("the engine was shut down")

    response = await answer(handler)
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "draining"
    assert caplog.text == ""


async def test_metrics_do_not_wait_for_those_who_wait_for_the_scheduler() -> None:
    answered = threading.Event()
    service = Service(ServerArgs())
    shown = SimpleNamespace(body=b"up 1", content_type="text/plain")
    service._serving = SimpleNamespace(  # type: ignore[assignment]
        replica=SimpleNamespace(monitor=SimpleNamespace(expose=lambda accept: shown, http_request=lambda *_: None))
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(App(service)), base_url="http://localhost") as client:
        stuck = [asyncio.ensure_future(service.control(answered.wait)) for _ in range(2 * CONTROL_THREADS)]
        assert (await client.get("/metrics")).text == "up 1"
        answered.set()
        assert all(await asyncio.gather(*stuck))
    service.close()
