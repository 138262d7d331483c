"""The conformance suite of kind `routes`: its table, and each of its handlers with good, bad and broken requests, behind the
server's own application over a runtime that answers by script. Needs no torch.

A route's `examples` are what it is asked; in a body that has a `model` that is the served model's name.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import httpx

from jackfield.entrypoints.http.routing.rules import overlap, route_problems
from jackfield.entrypoints.http.routing.table import ROUTES
from jackfield.entrypoints.http.schemas.common import ErrorAnswer
from jackfield.hookspecs import Route, RouteError, RouteLevel
from jackfield.testing.conformance.suite import Conformance
from jackfield.testing.route_client import PLUGIN, RouteClient
from jackfield.testing.scripted_runtime import CARD, HELLO, ScriptedRuntime

T = TypeVar("T")

JSON = {"content-type": "application/json"}
BROKEN = (b"", b"{", b"[]", b"null", b'"text"', b'{"a": "\xff"}', b"\x80\x04pickle", b'{"x":' + b"[" * 10_000)
"""No request at all."""

WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    1e308,
    2**63,
    "",
    "\x00",
    "x" * 10_000,
    [],
    [[]],
    [None] * 50,
    {},
    {"type": "nobody"},
)
"""What a client may put where something else is wanted."""


class RoutesConformance(Conformance):
    kind = "routes"

    def routes(self) -> Sequence[Route]:
        """A new table."""
        return tuple(self.make())

    def bodies(self) -> Iterator[tuple[Route, dict[str, Any]]]:
        """Each example of each route that reads a body."""
        for route in self.routes():
            for example in route.examples:
                body = dict(example)
                if "model" in body:
                    body["model"] = CARD.name
                yield route, body

    def test_the_table(self) -> None:
        """Every route has what the reference and the keys need, and none meets one of the core's or of its own."""
        table = self.routes()
        for i, route in enumerate(table):
            assert isinstance(route, Route), f"{route!r} is no jackfield.hookspecs.Route"
            problems = list(route_problems(route, frozenset(self.manifest().features)))
            assert not problems, f"{route.path}: {'; '.join(problems)}"
            for other in (*ROUTES, *table[:i]):
                assert not overlap(route.path, other.path), f"{route.path} and {other.path} answer one path"

    def test_every_body_has_an_example(self) -> None:
        """A route that reads a body shows one, which the reference and these checks use."""
        lacking = [route.path for route in self.routes() if route.request is not None and not route.examples]
        assert not lacking, f"no examples: {', '.join(lacking)}"

    def test_examples_are_answered(self) -> None:
        """Each example has the answer that the table promises: its model, or a stream of its media type."""

        async def check() -> None:
            for route, body in self.bodies():
                async with RouteClient(self.routes(), ScriptedRuntime()) as client:
                    for method in route.methods:
                        if method != "GET":
                            _assert_answer(route, await client.send(method, _path(route), json=body))
                    _assert_no_fault(client, route)

        _run(check())

    def test_what_is_only_read(self) -> None:
        """GET is answered as the table promises, or refused in the protocol's shape."""

        async def check() -> None:
            async with RouteClient(self.routes(), ScriptedRuntime()) as client:
                for route in self.routes():
                    if "GET" in route.methods:
                        _assert_answer(route, await client.send("GET", _path(route)))
                        _assert_no_fault(client, route)

        _run(check())

    def test_broken_bodies_are_refused(self) -> None:
        """What is no JSON object, or lies too deep, is a 400 in the protocol's own shape."""

        async def check() -> None:
            async with RouteClient(self.routes(), ScriptedRuntime()) as client:
                for route in self.routes():
                    for method in route.methods:
                        if route.request is None or method == "GET":
                            continue
                        for content in BROKEN:
                            answer = await client.send(method, _path(route), content=content, headers=JSON)
                            assert answer.status_code == 400, f"{route.path}, {content[:20]!r}: {answer.status_code}"
                            _assert_refusal(route, answer)

        _run(check())

    def test_wrong_values_are_no_fault(self) -> None:
        """Whatever a client writes into a field of an example, the handler answers or refuses; it never fails."""

        async def check() -> None:
            for route, body in self.bodies():
                async with RouteClient(self.routes(), ScriptedRuntime()) as client:
                    method = next(method for method in route.methods if method != "GET")
                    assert route.request is not None
                    fields = route.request.model_json_schema().get("properties", {})
                    # Every field that the model has, and every place that the example fills.
                    for place in [*((name,) for name in sorted(fields)), *_places(body)]:
                        for value in WRONG:
                            answer = await client.send(method, _path(route), json=_changed(body, place, value))
                            if answer.status_code >= 400:
                                _assert_refusal(route, answer)
                            _assert_no_fault(client, route, f"{place} = {str(value)[:40]!r}")

        _run(check())

    def test_refusals_of_the_runtime(self) -> None:
        """What the runtime refuses reaches the client with its status and its words, in the protocol's own shape."""

        async def check() -> None:
            for status in (400, 404, 429, 503):
                for route, body in self.bodies():
                    if not route.generates:
                        continue
                    refusal = RouteError(status, "the reason", code="reason")
                    async with RouteClient(self.routes(), ScriptedRuntime(refusal=refusal)) as client:
                        answer = await client.post(_path(route), body)
                        assert answer.status_code == status, f"{route.path} made {answer.status_code} of {status}"
                        assert "the reason" in answer.text, f"{route.path} hides the reason: {answer.text}"
                        _assert_refusal(route, answer)
                        _assert_no_fault(client, route)

        _run(check())

    def test_an_answer_that_fails_half_way(self) -> None:
        """Before the first piece an error is a status; after it the stream tells of it and ends."""

        async def check() -> None:
            batches = tuple((event,) for event in HELLO[:-1])
            for route, body in self.bodies():
                if not route.generates:
                    continue
                runtime = ScriptedRuntime(batches, error=RouteError(500, "it broke"))
                async with RouteClient(self.routes(), runtime) as client:
                    answer = await client.post(_path(route), body)
                    if not runtime.runs:
                        continue
                    assert answer.status_code in (200, 500), f"{route.path} made {answer.status_code} of an error"
                    assert "it broke" in answer.text, f"{route.path} does not tell of the error: {answer.text}"
                    _assert_no_fault(client, route)

        _run(check())

    def test_a_client_that_leaves(self) -> None:
        """A stream whose client goes away is closed, and so is what it reads from."""

        async def check() -> None:
            for route, body in self.bodies():
                if route.stream is None or "POST" not in route.methods:
                    continue
                for name in ("stream", None):
                    runtime = ScriptedRuntime(tuple((event,) for event in HELLO * 20))
                    async with RouteClient(self.routes(), runtime) as client:
                        asked = body if name is None else {**body, name: True}
                        await client.leave_after(_path(route), asked, 2)
                        await asyncio.sleep(0)
                        assert client.service.open_calls == 0
                        left = [run for run in runtime.runs if not run.closed]
                        assert not left, f"{route.path}: the client has gone, and its answer is still read"
                        _assert_no_fault(client, route)

        _run(check())

    def test_keys(self) -> None:
        """With keys set a route answers by its level, and refuses in the protocol's own shape."""

        async def check() -> None:
            given = {"none": {}, "api": {"authorization": "Bearer k"}, "admin": {"authorization": "Bearer a"}}
            wanted = {
                RouteLevel.OPEN: {"none": False, "api": False, "admin": False},
                RouteLevel.KEY: {"none": True, "api": False, "admin": False},
                RouteLevel.ADMIN: {"none": True, "api": True, "admin": False},
            }
            async with RouteClient(self.routes(), ScriptedRuntime(), api_key="k", admin_api_key="a") as client:
                for route in self.routes():
                    for who, headers in given.items():
                        answer = await client.send(route.methods[0], _path(route), headers=headers)
                        refused = answer.status_code in (401, 403)
                        assert refused is wanted[route.level][who], f"{route.path} with {who} key: {answer.status_code}"
                        if refused:
                            _assert_refusal(route, answer)

        _run(check())


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def _path(route: Route) -> str:
    return re.sub(r"\{\w+(:path)?\}", CARD.name, route.path)


Place = tuple[str | int, ...]
"""Names and positions on the way to a value."""


def _places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Everything that lies inside."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in inner:
        yield (*at, name)
        yield from _places(item, (*at, name))


def _changed(value: Any, place: Place, new: Any) -> Any:
    """A copy with another value in this place."""
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    inner = copy.get(place[0]) if isinstance(copy, dict) else copy[place[0]]  # type: ignore[index]
    copy[place[0]] = _changed(inner, place[1:], new)  # type: ignore[index]
    return copy


def _assert_answer(route: Route, answer: httpx.Response) -> None:
    if answer.status_code >= 400:
        _assert_refusal(route, answer)
        return
    kind = answer.headers["content-type"].partition(";")[0]
    if route.stream is not None and kind == route.stream_type:
        assert answer.content, f"{route.path}: a stream of nothing"
        return
    assert kind == route.media_type, f"{route.path} answers {kind}; its table says {route.media_type}"
    if route.response is not None:
        route.response.model_validate_json(answer.content)


def _assert_refusal(route: Route, answer: httpx.Response) -> None:
    assert 400 <= answer.status_code <= 599
    model = route.error or ErrorAnswer
    try:
        model.model_validate_json(answer.content)
    except Exception as error:
        raise AssertionError(
            f"{route.path} refuses in another shape than {model.__name__}: {answer.text[:500]}"
        ) from error


def _assert_no_fault(client: RouteClient, route: Route, case: str = "") -> None:
    fault = client.ledger.snapshot().get(PLUGIN)
    assert fault is None, f"{route.path} failed{f' with {case}' if case else ''}: {fault and fault['last']}"
