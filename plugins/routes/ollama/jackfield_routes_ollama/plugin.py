"""Entry point of the routes `ollama`. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.hookspecs import Route, RoutesContext, hookimpl


@hookimpl
def jackfield_routes(context: RoutesContext) -> Sequence[Route]:
    from jackfield_routes_ollama.options import OllamaOptions
    from jackfield_routes_ollama.routes import routes

    options = context.options
    if not isinstance(options, OllamaOptions):
        raise TypeError(f"routes.{context.instance} wants OllamaOptions, got {type(options).__name__}")
    return routes(options)
