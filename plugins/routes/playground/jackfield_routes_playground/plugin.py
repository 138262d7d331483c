"""Entry point of the routes `playground`. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.hookspecs import Route, RoutesContext, hookimpl


@hookimpl
def jackfield_routes(context: RoutesContext) -> Sequence[Route]:
    from jackfield_routes_playground.routes import routes

    return routes()
