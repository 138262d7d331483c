"""Entry point of the routes `anthropic`. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.hookspecs import Route, RoutesContext, hookimpl


@hookimpl
def jackfield_routes(context: RoutesContext) -> Sequence[Route]:
    from jackfield_routes_anthropic.options import AnthropicOptions
    from jackfield_routes_anthropic.routes import routes

    options = context.options
    if not isinstance(options, AnthropicOptions):
        raise TypeError(f"routes.{context.instance} wants AnthropicOptions, got {type(options).__name__}")
    return routes(options)
