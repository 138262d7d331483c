"""B82: the route table, with the routes of every installed plugin, walked with every kind of credential."""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.config.flags import server_args_from_kwargs
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.guards.auth import Keys
from jackfield.entrypoints.http.routing.table import ROUTES
from jackfield.hookspecs import RouteLevel as Level
from tests.unit.http.route_walk import ALL, EVERY_METHOD, EVERY_ROUTE, Walked

API, ADMIN = "sk-ordinary", "sk-admin"
BOTH = {"api_key": API, "admin_api_key": ADMIN}
OPEN_PATHS = {"/health", "/ready", "/ping", "/", "/playground/{file}"}


async def status(args: dict[str, Any], method: str, path: str, headers: Any = (), walked: Walked | None = None) -> int:
    """What the application answers without a replica: 503 or 4xx past the keys, 401 or 403 at them."""
    walked = walked or ALL[0]
    answer = await walked.ask(ServerArgs(**args), method, path, headers=list(headers))
    if answer.status_code >= 400 and method != "HEAD":
        if walked.route.error_body is None:
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert API not in answer.text
        assert ADMIN not in answer.text
    return answer.status_code


def api_key(key: str) -> list[tuple[str, str]]:
    return [("x-api-key", key)]


def bearer(key: str, scheme: str = "Bearer") -> list[tuple[str, str]]:
    return [("authorization", f"{scheme} {key}")]


def test_the_open_list_is_written_and_short() -> None:
    assert {one.route.path for one in ALL if one.route.level is Level.OPEN} == OPEN_PATHS
    assert {route.path for route in ROUTES if route.level is Level.ADMIN} == {
        "/flush_cache",
        "/abort_request",
        "/schedule_policy",
        "/requests/{rid:path}/why",
    }


@pytest.mark.parametrize(("walked", "method"), EVERY_METHOD)
async def test_every_route_with_every_credential(walked: Walked, method: str) -> None:
    path, route = walked.path, walked.route
    refused = {
        "none": [],
        "wrong": bearer("sk-wrong"),
        "prefix": bearer(API[:-1]),
        "longer": bearer(API + "x"),
        "other case": bearer(API.upper()),
        "other scheme": bearer(API, "Basic"),
        "no scheme": [("authorization", API)],
        "empty": [("authorization", "Bearer ")],
        "twice": bearer(API) + bearer(ADMIN),
        "not ascii": [("authorization", b"Bearer \xe9\xff")],
        "query": [],
        "x-api-key wrong": api_key("sk-wrong"),
        "x-api-key empty": api_key(""),
        "x-api-key with a scheme": api_key(f"Bearer {API}"),
        "x-api-key twice": api_key(API) + api_key(API),
        "both, and they differ": bearer(API) + api_key(ADMIN),
        "both, and the first is wrong": bearer("sk-wrong") + api_key(ADMIN),
        "both, and the second is wrong": bearer(ADMIN) + api_key("sk-wrong"),
        "x-api-key beside another scheme": bearer("user:word", "Basic") + api_key(ADMIN),
    }
    for name, headers in refused.items():
        where = f"{path}?api_key={API}" if name == "query" else path
        got = await status(BOTH, method, where, headers, walked=walked)
        assert (got == 401) is (route.level is not Level.OPEN), name
    ordinary = await status(BOTH, method, path, bearer(API), walked=walked)
    assert (ordinary == 403) is (route.level is Level.ADMIN)
    assert ordinary != 401
    assert await status(BOTH, method, path, api_key(API), walked=walked) == ordinary
    right = (
        bearer(ADMIN),
        bearer(ADMIN, "bearer"),
        bearer(ADMIN, "BEARER"),
        api_key(ADMIN),
        bearer(ADMIN) + api_key(ADMIN),
    )
    for headers in right:
        assert await status(BOTH, method, path, headers, walked=walked) not in (401, 403)


@pytest.mark.parametrize(("walked", "method"), EVERY_METHOD)
async def test_one_key_alone(walked: Walked, method: str) -> None:
    path, route = walked.path, walked.route
    # The ordinary key never opens admin routes, not even when there is no other.
    expected = {Level.OPEN: {}, Level.KEY: {"": 401}, Level.ADMIN: {"": 401, API: 403}}[route.level]
    for key in ("", API):
        got = await status({"api_key": API}, method, path, bearer(key) if key else (), walked=walked)
        assert got == expected.get(key, got)
        assert (got in (401, 403)) is (key in expected)
    got = await status({"admin_api_key": ADMIN}, method, path, walked=walked)
    assert (got == 401) is (route.level is Level.ADMIN)
    assert await status({}, method, path, walked=walked) not in (401, 403)


@pytest.mark.parametrize(
    "path", ["/nope", "/v1", "/v1/", "/generate/", "//generate", "/health/", "/HEALTH", "/v1/%2e%2e/metrics"]
)
async def test_what_is_not_in_the_table_is_denied_before_it_is_not_found(path: str) -> None:
    assert await status(BOTH, "GET", path) == 401
    assert await status(BOTH, "GET", path, bearer(API)) == 404


@pytest.mark.parametrize("walked", EVERY_ROUTE)
async def test_options_does_nothing(walked: Walked) -> None:
    headers = [("origin", "http://evil.example"), ("access-control-request-method", "POST")]
    denied = await status(BOTH, "OPTIONS", walked.path, headers, walked)
    assert denied == (405 if walked.route.level is Level.OPEN else 401)
    assert await status(BOTH, "OPTIONS", walked.path, headers + bearer(ADMIN), walked) == 405


async def test_a_refusal_names_the_scheme() -> None:
    with pytest.raises(ApiError) as refused:
        Keys(API, None).check(Level.KEY, [])
    assert refused.value.headers == {"www-authenticate": "Bearer"}


@pytest.mark.parametrize("name", ["api_key", "admin_api_key"])
@pytest.mark.parametrize("bad", ["", " ", "two words", "tab\t", "naïve", "line\n"])
def test_a_key_that_no_header_carries_is_a_start_error(name: str, bad: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        server_args_from_kwargs({name: bad}, {})
    assert name in str(refused.value)
    assert not bad.strip() or bad not in str(refused.value)


def test_an_empty_key_in_the_environment_is_a_start_error() -> None:
    with pytest.raises(ConfigurationError, match="JACKFIELD_API_KEY"):
        server_args_from_kwargs({}, {"JACKFIELD_API_KEY": ""})


def test_one_key_for_both_is_a_start_error() -> None:
    with pytest.raises(ConfigurationError, match="every client is an admin") as refused:
        server_args_from_kwargs({"api_key": API, "admin_api_key": API}, {})
    assert API not in str(refused.value)


def test_keys_are_shown_nowhere() -> None:
    args = ServerArgs(api_key=API, admin_api_key=ADMIN)
    for text in (repr(args), str(args), str(args.public_dump())):
        assert API not in text
        assert ADMIN not in text
    with pytest.raises(ConfigurationError) as refused:
        server_args_from_kwargs({"api_key": 12345678}, {})
    assert "12345678" not in str(refused.value)


@pytest.mark.parametrize(
    ("args", "host", "known"),
    [
        ({}, "localhost", True),
        ({}, "LOCALHOST:30000", True),
        ({}, "127.0.0.1:30000", True),
        ({}, "[::1]:30000", True),
        ({}, "evil.example:30000", False),
        ({}, "localhost.evil.example", False),
        ({}, "", False),
        ({"allowed_host": "box"}, "box:1", True),
        ({"allowed_host": ("box", "*")}, "evil.example", True),
        ({"api_key": API}, "evil.example", True),
        ({"admin_api_key": ADMIN}, "evil.example", False),
        ({"host": "0.0.0.0"}, "box", True),
    ],
)
async def test_a_web_page_cannot_reach_the_loopback_under_its_own_name(
    args: dict[str, Any], host: str, known: bool
) -> None:
    got = await status(args, "GET", "/ping", [("host", host)])
    assert got == (200 if known else 400)
