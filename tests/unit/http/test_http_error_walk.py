"""B20: every route of the installation, asked in every wrong way: the error has the route's shape, the body says what the status
says, and nothing of the inside shows."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import httpx
import pytest

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.http.app import App
from jackfield.entrypoints.http.errors import INTERNAL
from jackfield.entrypoints.http.service import Service
from jackfield.hookspecs import RouteLevel
from tests.unit.http.route_walk import EVERY_METHOD, EVERY_ROUTE, Walked

ARGS = ServerArgs(max_request_bytes=2000, max_json_depth=20)
JSON = {"content-type": "application/json"}
SECRET = "/home/secret/weights"

INSIDES = ("Traceback", "jackfield.", "pydantic", "msgspec", ".py", "0x", SECRET)

WRONG: list[tuple[str, dict[str, Any], int]] = [
    ("no JSON", {"content": b"{", "headers": JSON}, 400),
    ("no object", {"content": b"[]", "headers": JSON}, 400),
    ("not UTF-8", {"content": b'{"a": "\xff"}', "headers": JSON}, 400),
    ("nothing", {"content": b"", "headers": JSON}, 400),
    ("another type", {"content": b"{}", "headers": {"content-type": "text/plain"}}, 400),
    ("a form", {"data": {"a": "b"}}, 400),
    ("too deep", {"content": b'{"a":' * 30, "headers": JSON}, 400),
    ("too long", {"content": b"x" * 3000, "headers": JSON}, 413),
]


def assert_error(walked: Walked, answer: httpx.Response, status: int) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    told = answer.json()
    if walked.route.error_body is None:
        assert set(told) == {"error"}
        error = told["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"] and isinstance(error["message"], str)  # noqa: PT018
        assert (error["type"] == "server_error") is (status == 500)
    else:
        assert isinstance(told, dict)
        assert told
    for inside in INSIDES:
        assert inside not in answer.text


@pytest.mark.parametrize("walked", EVERY_ROUTE)
async def test_b20_another_method(walked: Walked) -> None:
    for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"} - set(walked.route.methods):
        answer = await walked.ask(ARGS, method, up=True)
        assert_error(walked, answer, 405)
        assert answer.headers["allow"] == ", ".join(walked.route.methods)


@pytest.mark.parametrize(("walked", "method"), EVERY_METHOD)
async def test_b20_what_is_no_request(walked: Walked, method: str) -> None:
    if walked.route.request is None or method == "GET":
        return
    for name, sent, status in WRONG:
        answer = await walked.ask(ARGS, method, up=True, **sent)
        assert answer.status_code == status, name
        assert_error(walked, answer, status)


@pytest.mark.parametrize(("walked", "method"), EVERY_METHOD)
async def test_b20_without_a_model_or_a_key(walked: Walked, method: str) -> None:
    if walked.route.level is not RouteLevel.OPEN:
        keys = ServerArgs(api_key="sk-ordinary", admin_api_key="sk-admin")
        assert_error(walked, await walked.ask(keys, method), 401)
    if walked.route.generates:
        answer = await walked.ask(ARGS, method, content=b"{}", headers=JSON)
        assert_error(walked, answer, 503)
        assert answer.headers["retry-after"]


@pytest.mark.parametrize("walked", EVERY_ROUTE)
@pytest.mark.parametrize(
    "error", [ValueError(SECRET), KeyError(SECRET), RecursionError(), MemoryError(SECRET)], ids=repr
)
async def test_b20_a_fault_of_a_handler(walked: Walked, error: Exception) -> None:
    """The handler fails at once, with no body read."""

    async def broken(request: Any) -> Any:
        raise error

    route = dataclasses.replace(walked.route, handler=broken, request=None)
    table = None if walked.table is None else dataclasses.replace(walked.table, routes=(route,))
    app = App(Service(ARGS), [route] if table is None else [], complete=table is None)
    if table is not None:
        app.add([table])
    app.service.status.up()
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://localhost"
    ) as client:
        answer = await client.request(route.methods[0], walked.path)
    app.service.close()
    assert_error(walked, answer, 500)
    assert INTERNAL in json.dumps(answer.json())
