"""Which pages of other origins may use the server (B82 OPTIONS): none unless it is said, and admin routes never."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.config.flags import server_args_from_kwargs
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.http.app import App
from jackfield.entrypoints.http.routing.table import ROUTES
from jackfield.entrypoints.http.service import Service
from jackfield.hookspecs import RouteLevel as Level

PAGE, OTHER = "https://chat.example", "https://evil.example"
KEY = "sk-ordinary"
OURS = {"access-control-allow-origin": PAGE, "vary": "origin"}


async def ask(args: dict[str, Any], method: str, path: str, **headers: str) -> httpx.Response:
    service = Service(ServerArgs(**args))
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        transport = httpx.ASGITransport(App(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, headers=sent)
    finally:
        service.close()


async def preflight(args: dict[str, Any], path: str, origin: str, **more: str) -> httpx.Response:
    return await ask(args, "OPTIONS", path, origin=origin, access_control_request_method="POST", **more)


def allowed(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


@pytest.mark.parametrize("path", [route.path for route in ROUTES if "{" not in route.path] + ["/nope"])
async def test_a_preflight_is_answered_for_a_named_origin_alone(path: str) -> None:
    args = {"cors_origin": (PAGE,), "api_key": KEY}
    admin = any(route.path == path and route.level is Level.ADMIN for route in ROUTES)
    answer = await preflight(args, path, PAGE, access_control_request_headers="authorization,x-api-key,content-type")
    if admin:
        assert answer.status_code == 401
        assert allowed(answer) == {}
    else:
        assert answer.status_code == 204
        assert answer.content == b""
        assert not {"content-type", "content-length"} & set(answer.headers)
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert answer.headers["access-control-allow-headers"] == "authorization,x-api-key,content-type"
        assert "access-control-allow-credentials" not in answer.headers
    for origin in (OTHER, PAGE + ".evil.example", PAGE + ":444", "http://chat.example", "null", PAGE.upper()):
        refused = await preflight(args, path, origin)
        assert refused.status_code in (401, 405)
        assert allowed(refused) == {}
    assert allowed(await preflight({"api_key": KEY}, path, PAGE)) == {}


async def test_a_preflight_opens_nothing() -> None:
    args = {"cors_origin": (PAGE,), "api_key": KEY}
    bare = await ask(args, "OPTIONS", "/v1/models", origin=PAGE)
    assert bare.status_code == 401  # no preflight: it names no method
    refused = await ask(args, "GET", "/v1/models", origin=PAGE)
    assert refused.status_code == 401
    assert OURS.items() <= dict(refused.headers).items()  # so that the page can tell its user why
    taken = await ask(args, "GET", "/v1/models", origin=PAGE, authorization=f"Bearer {KEY}")
    assert taken.status_code == 503  # past the key; nothing is served in here
    assert taken.headers["access-control-expose-headers"] == "x-request-id, request-id, retry-after"
    assert allowed(await ask(args, "GET", "/v1/models", origin=OTHER, authorization=f"Bearer {KEY}")) == {}
    assert (await ask(args, "GET", "/ping")).headers["vary"] == "origin"  # for caches between, whoever asked first


async def test_any_origin() -> None:
    answer = await preflight({"cors_origin": ("*",)}, "/generate", OTHER, access_control_request_private_network="true")
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-private-network"] == "true"
    assert allowed(await preflight({"cors_origin": ("*",)}, "/flush_cache", OTHER)) == {}


@pytest.mark.parametrize("wanted", ["x\nevil: 1", "a" * 2000, "naïve", ""])
async def test_only_names_of_headers_are_repeated(wanted: str) -> None:
    from jackfield.entrypoints.http.guards.cors import Cors

    headers = {
        "origin": PAGE,
        "access-control-request-method": "POST",
        "access-control-request-headers": wanted,
    }
    made = Cors([PAGE]).preflight("OPTIONS", headers, admin=False)
    assert made is not None
    assert b"access-control-allow-headers" not in dict(made)


@pytest.mark.parametrize(
    "bad", ["chat.example", "https://chat.example/", "https://Chat.example", "null", "https://*.example", ""]
)
def test_what_is_no_origin_is_a_start_error(bad: str) -> None:
    with pytest.raises(ConfigurationError, match="cors_origin"):
        server_args_from_kwargs({"cors_origin": bad}, {})
