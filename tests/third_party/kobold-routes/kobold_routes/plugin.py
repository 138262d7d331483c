"""Routes `kobold`."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.hookspecs import Route, RouteLevel, RoutesContext, hookimpl


@hookimpl
def jackfield_routes(context: RoutesContext) -> Sequence[Route]:
    from kobold_routes.protocol import Generate, Model, Problem, Results, Token, generate, model, problem, stream

    body = {"request": Generate, "examples": ({"prompt": "Once upon a time", "max_length": 8},)}
    common = {"level": RouteLevel.KEY, "error_body": problem, "error": Problem}
    posts = {"methods": ("POST",), "generates": True, **body, **common}
    return [
        Route(
            path="/api/v1/model",
            methods=("GET",),
            handler=model,
            summary="The served model.",
            response=Model,
            **common,  # type: ignore[arg-type]
        ),
        Route(
            path="/api/v1/generate",
            handler=generate,
            summary="How a story goes on.",
            response=Results,
            **posts,  # type: ignore[arg-type]
        ),
        Route(
            path="/api/extra/generate/stream",
            handler=stream,
            summary="How a story goes on, piece by piece.",
            answer="events named message",
            stream=Token,
            media_type="text/event-stream",
            **posts,  # type: ignore[arg-type]
        ),
    ]
