"""What a table of routes must be like before a server answers by it. Every finding is an error of the start.

Deny by default: an open route is declared, reads no body and generates nothing, whoever wrote it.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.http.routing.table import ROUTES
from jackfield.entrypoints.plugin_routes import PluginRoutes
from jackfield.hookspecs import Route, RouteLevel

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""HEAD comes with GET; OPTIONS is the core's."""

OPEN_ROUTES = "open_routes"
"""The feature that a manifest declares for routes that need no key."""

_LITERAL = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@-]+")
_PARAMETER = re.compile(r"\{([a-z][a-z0-9_]*)(:path)?\}")
_HEADER = re.compile(r"[A-Za-z0-9-]+")


@dataclass(frozen=True)
class _Owned:
    route: Route
    owner: str
    features: frozenset[str] | None


def check_plugin_routes(tables: Sequence[PluginRoutes], own: Sequence[Route] = ROUTES) -> None:
    """Raises ConfigurationError for the first thing that is wrong with the tables of plugins, or between them and the core's."""
    known = [_Owned(route, "Jackfield itself", None) for route in own]
    for table in tables:
        for route in table.routes:
            mine = _Owned(route, table.described, table.features)
            for problem in route_problems(route, table.features):
                raise ConfigurationError(f"{table.described}: the route {route.path!r}: {problem}")
            for other in known:
                if overlap(route.path, other.route.path):
                    theirs = f" (as {other.route.path})" if other.route.path != route.path else ""
                    raise ConfigurationError(
                        f"--routes: {table.described} and {other.owner} both answer {route.path}{theirs}: leave one of them "
                        "out, or move it by its options"
                    )
            known.append(mine)


def route_problems(route: Route, features: frozenset[str]) -> Iterator[str]:
    """What is wrong with one route. features: those that its plugin's manifest declares."""
    yield from _path_problems(route.path)
    if not route.methods or not set(route.methods) <= set(METHODS):
        yield f"methods must be of {', '.join(METHODS)}, not {route.methods!r}"
    if not inspect.iscoroutinefunction(route.handler):
        yield "its handler is not async: write `async def`"
    if not route.summary.strip():
        yield "it has no summary: the reference and /openapi.json would not say what it does"
    if route.response is None and not route.answer.strip():
        yield "it has neither a response model nor a sentence in `answer`: nobody could know what comes"
    if route.request is not None and set(route.methods) <= {"GET"}:
        yield "it has a request model, and GET has no body"
    if (route.error_body is None) != (route.error is None):
        yield "error_body and error, the model of what it makes, belong together"
    for name in ("request", "response", "stream", "error"):
        model = getattr(route, name)
        if model is not None and not (hasattr(model, "model_validate") and hasattr(model, "model_json_schema")):
            yield f"{name} must be a pydantic model, not {model!r}"
    yield from _example_problems(route)
    for query, meaning in route.query.items():
        if not meaning.strip():
            yield f"the query parameter {query!r} is not explained"
    for entry, ceiling in route.ceilings.items():
        if ceiling not in ServerArgs.model_fields:
            near = did_you_mean(ceiling, ServerArgs.model_fields)
            yield f"the ceiling {ceiling!r} of {entry!r} is no argument of the server{near}"
    if route.id_header and not _HEADER.fullmatch(route.id_header):
        yield f"id_header {route.id_header!r} is no name of a header"
    if route.level is RouteLevel.OPEN:
        if OPEN_ROUTES not in features:
            yield f"it needs no key, and the manifest does not declare the feature {OPEN_ROUTES!r}"
        if route.generates or set(route.methods) != {"GET"}:
            yield "an open route may only be read (GET) and must not generate: give it the level KEY"


def _example_problems(route: Route) -> Iterator[str]:
    if route.request is None:
        if route.examples:
            yield "it has examples of a body, and reads none"
        return
    for example in route.examples:
        try:
            route.request.model_validate(example)
        except Exception as error:
            yield f"its request model does not take the example {json.dumps(example)[:200]}: {error}"


def _path_problems(path: str) -> Iterator[str]:
    if not path.startswith("/"):
        yield "its path must begin with /"
        return
    segments = path[1:].split("/")
    names, long = [], 0
    for segment in segments:
        found = _PARAMETER.fullmatch(segment)
        if found is not None:
            names.append(found[1])
            long += 1 if found[2] else 0
        elif not _LITERAL.fullmatch(segment) and path != "/":
            yield f"{segment!r} is no segment of a path: letters, digits and the like, or a {{parameter}} alone"
    if len(set(names)) != len(names):
        yield "two parameters have one name"
    if long > 1:
        yield "only one parameter may take several segments"


def overlap(one: str, other: str) -> bool:
    """Whether there is a path that both match."""
    return _overlap(one.split("/"), other.split("/"))


def _overlap(ours: list[str], theirs: list[str]) -> bool:
    if not ours or not theirs:
        return not ours and not theirs
    a, b = ours[0], theirs[0]
    if _takes_all(a) or _takes_all(b):
        # What stands behind it ("{rid:path}/why") can still tell them apart.
        return _rest_may_meet(ours, theirs)
    if a != b and not ((_is_parameter(a) and b) or (_is_parameter(b) and a)):
        return False
    return _overlap(ours[1:], theirs[1:])


def _rest_may_meet(ours: list[str], theirs: list[str]) -> bool:
    for a, b in zip(reversed(ours), reversed(theirs), strict=False):
        if _takes_all(a) or _takes_all(b):
            return True
        if a != b and not _is_parameter(a) and not _is_parameter(b):
            return False
    return True


def _takes_all(segment: str) -> bool:
    return segment.endswith(":path}")


def _is_parameter(segment: str) -> bool:
    return segment.startswith("{")
