"""The reference of HTTP routes: the core's, and those of the project's protocol plugins, from the records that are served."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, RootModel

from jackfield.entrypoints.http.routing.table import ROUTES
from jackfield.entrypoints.http.schemas.common import Native, OpenAI
from jackfield.hookspecs import Route
from jackfield.stack.discovery.scan import discover
from jackfield.stack.loading.load import INLINE, load_stack
from jackfield.stack.resolved import ResolvedStack
from jackfield.stack.selection.own import OWN_DISTRIBUTIONS
from jackfield.stack.selection.single import select_one


def endpoints() -> Iterator[str]:
    yield "# Endpoints\n"
    yield (
        "Every route of `jackfield serve`, with those of the project's protocol plugins. Level `open` needs no key; `key` needs "
        "the API key if one is set; `admin` needs the admin key if any key is set ([security](../security.md)). A path that is "
        "not here is denied like a `key` route before it is not found. Errors have one shape everywhere but in the protocols of "
        'others: `{"error": {"message", "type", "param", "code"}}`, with the same status. A running server tells the same of '
        "itself, with the plugins that it serves, as OpenAPI 3.1 at `/openapi.json`.\n"
    )
    yield from _table(ROUTES)
    yield from _routes(ROUTES, "")
    yield "## Bodies\n"
    yield from _bodies(ROUTES, "")
    catalogue = discover()
    for row in catalogue.rows("routes"):
        if row.distribution not in OWN_DISTRIBUTIONS:
            continue
        plugin = select_one(catalogue, "routes", row.name, {})
        routes: Sequence[Route] = load_stack(ResolvedStack(plugins=(plugin,)), INLINE).make("routes")
        yield f"## The protocol {row.name}\n"
        yield f"{plugin.manifest.summary}. Plugin `routes.{row.name}` of {row.distribution}.\n"
        yield from _table(routes)
        yield from _routes(routes, row.name)
        yield from _bodies(routes, row.name)


def _table(routes: Sequence[Route]) -> Iterator[str]:
    yield "| path | methods | level | what it does |\n|---|---|---|---|"
    for route in routes:
        yield f"| `{_path(route)}` | {', '.join(route.methods)} | {route.level.value} | {route.summary} |"
    yield ""


def _routes(routes: Sequence[Route], protocol: str) -> Iterator[str]:
    depth = "###" if protocol else "##"
    for route in routes:
        if not (route.request or route.response or route.query or route.answer):
            continue
        yield f"{depth} {_path(route)}\n"
        for name, meaning in route.query.items():
            yield f"- query `{name}`: {meaning}"
        if route.request is not None:
            yield f"- request: {_link(route.request, protocol)}"
        if route.response is not None:
            yield f"- answer: {_link(route.response, protocol)}"
        if route.answer:
            yield f"- answer: {route.answer}"
        if route.stream is not None:
            link = _link(route.stream, protocol)
            if protocol:
                yield f"- in a stream (`{route.stream_type}`): {link}"
            else:
                yield f"- with `stream`: server-sent events of {link}, then `data: [DONE]`, unless an error ends them"
        if route.error is not None:
            yield f"- errors: {_link(route.error, protocol)}"
        yield ""


def _bodies(routes: Sequence[Route], protocol: str) -> Iterator[str]:
    models: list[Any] = [
        model
        for route in routes
        for model in (route.request, route.response, route.stream, route.error)
        if model is not None
    ]
    done: list[Any] = []
    while models:
        model = models.pop(0)
        if model not in done:
            done.append(model)
            yield from _body(model, protocol)
            models.extend(_models_in(model))


def _link(model: Any, protocol: str) -> str:
    anchor = f"{protocol}-{model.__name__}" if protocol else model.__name__
    return f"[{model.__name__}](#{anchor.lower()})"


def _path(route: Any) -> str:
    return str(route.path).replace(":path", "")


def _body(model: Any, protocol: str) -> Iterator[str]:
    yield f"### {protocol} {model.__name__}\n".replace("  ", " ")
    # Without a docstring of its own a model has its base's.
    if "__doc__" in vars(model) and model.__doc__:
        yield f"{inspect.cleandoc(model.__doc__)}\n"
    if issubclass(model, RootModel):
        yield f"{_type(model.model_fields['root'].annotation, protocol)}\n"
        return
    not_yet = []
    yield "| field | type | meaning |\n|---|---|---|"
    for name, field in model.model_fields.items():
        if field.description and field.description.startswith("Not supported by this version: refused unless it asks"):
            not_yet.append(f"`{name}`")
            continue
        asked = protocol or issubclass(model, Native | OpenAI)
        required = " (required)" if field.is_required() and asked else ""
        yield f"| `{name}`{required} | {_type(field.annotation, protocol)} | {field.description or ''} |"
    yield ""
    if not_yet:
        yield f"Known and not supported by this version, so refused unless they ask for nothing: {', '.join(not_yet)}.\n"


def _type(annotation: Any, protocol: str) -> str:
    if annotation is type(None):
        return "null"
    if annotation is Any:
        return "any"
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(inner[0], protocol)
    if origin in (Union, UnionType):
        return " or ".join(_type(arm, protocol) for arm in inner)
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in inner)
    if origin is list:
        return f"list of {_type(inner[0], protocol)}"
    if origin is dict:
        return "object"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _link(annotation, protocol)
    return str({str: "text", int: "integer", float: "number", bool: "true or false"}[annotation])


def _models_in(model: Any) -> list[Any]:
    found: list[Any] = []

    def look(annotation: Any) -> None:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            found.append(annotation)
        for inner in get_args(annotation):
            look(inner)

    for field in model.model_fields.values():
        look(field.annotation)
    return found
