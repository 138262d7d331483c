"""`/openapi.json`: OpenAPI 3.1, made of the route table of the running server, plugins' routes with it. Knows no route.

A stream's pieces cannot be told in OpenAPI 3.1: their model stands beside the media type as `x-event-schema`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from jackfield import __version__
from jackfield.entrypoints.http.exchange import Exchange, Reply, json_response
from jackfield.entrypoints.http.schemas.common import ErrorAnswer
from jackfield.hookspecs import Route, RouteLevel

SCHEMAS = "#/components/schemas/{model}"
_PARAMETER = re.compile(r"\{(\w+)(:\w+)?\}")
_SECURITY: Mapping[RouteLevel, list[dict[str, list[str]]]] = {
    RouteLevel.OPEN: [],
    RouteLevel.KEY: [{"key": []}, {"x_api_key": []}],
    RouteLevel.ADMIN: [{"admin_key": []}, {"x_api_key": []}],
}

Refs = Mapping[Any, dict[str, Any]]
"""Model -> the reference to its schema."""


async def openapi(exchange: Exchange) -> Reply:
    return json_response(document(exchange.routes))


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole document."""
    refs, schemas = _schemas(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = _PARAMETER.sub(r"{\1}", route.path)
        for method in route.methods:
            paths.setdefault(path, {})[method.lower()] = _operation(route, method, refs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Jackfield",
            "version": __version__,
            "description": "Every answer has the header X-Request-Id: the request's own, if it sent one.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "the API key or the admin key"},
                "admin_key": {"type": "http", "scheme": "bearer", "description": "the admin key"},
                "x_api_key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "the same keys"},
            },
        },
    }


def _schemas(routes: Sequence[Route]) -> tuple[Refs, dict[str, Any]]:
    models: dict[type[BaseModel], None] = {ErrorAnswer: None}
    for route in routes:
        for model in (route.request, route.response, route.stream, route.error):
            if model is not None:
                models[model] = None
    # In the mode of validation a field with a default may be left out, as answers do.
    made, found = models_json_schema([(model, "validation") for model in models], ref_template=SCHEMAS)
    return {model: ref for (model, _), ref in made.items()}, found["$defs"]


def _operation(route: Route, method: str, refs: Refs) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": "_".join([method.lower(), *re.findall(r"\w+", _PARAMETER.sub(r"\1", route.path))]),
        "summary": route.summary,
        "security": _SECURITY[route.level],
        "responses": {"200": _success(route, refs), **_failures(route, refs)},
    }
    if parameters := _parameters(route):
        told["parameters"] = parameters
    if route.request is not None and method != "GET":
        body: dict[str, Any] = {"schema": refs[route.request]}
        if route.examples:
            body["examples"] = {f"{i + 1}": {"value": dict(example)} for i, example in enumerate(route.examples)}
        told["requestBody"] = {"required": True, "content": {"application/json": body}}
    return told


def _parameters(route: Route) -> list[dict[str, Any]]:
    text = {"type": "string"}
    found = [
        {"name": name, "in": "path", "required": True, "schema": {**text, "minLength": 1}}
        for name, _ in _PARAMETER.findall(route.path)
    ]
    found += [
        {"name": name, "in": "query", "description": meaning, "schema": text} for name, meaning in route.query.items()
    ]
    return found


def _success(route: Route, refs: Refs) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if route.response is not None:
        content[route.media_type] = {"schema": refs[route.response]}
    else:
        content[route.media_type] = {"schema": {} if route.media_type == "application/json" else {"type": "string"}}
    if route.stream is not None:
        content[route.stream_type] = {"schema": {"type": "string"}, "x-event-schema": refs[route.stream]}
    return {"description": route.answer or route.summary, "content": content}


def _failures(route: Route, refs: Refs) -> dict[str, Any]:
    content = {"application/json": {"schema": refs[route.error or ErrorAnswer]}}
    return {
        "4XX": {"description": "The request is refused, and says why.", "content": content},
        "5XX": {"description": "The server cannot answer it, now (503) or at all.", "content": content},
    }
