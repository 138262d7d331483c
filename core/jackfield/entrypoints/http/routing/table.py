"""The core's own routes. The application, the key walk of the tests and the endpoint reference are made from them."""

from __future__ import annotations

from jackfield.entrypoints.http.native.table import NATIVE
from jackfield.entrypoints.http.openai.table import OPENAI
from jackfield.entrypoints.http.pooling.table import POOLING
from jackfield.entrypoints.http.responses.table import RESPONSES
from jackfield.entrypoints.http.routing import openapi
from jackfield.hookspecs import Route
from jackfield.hookspecs import RouteLevel as Level

DEFAULT_LEVEL = Level.KEY
"""Of every path that the table does not hold: denied before it is not found."""

ROUTES: tuple[Route, ...] = (
    *OPENAI,
    *RESPONSES,
    *POOLING,
    *NATIVE,
    Route(
        path="/openapi.json",
        methods=("GET",),
        level=Level.KEY,
        handler=openapi.openapi,
        summary="All routes of this server, those of plugins with them, as OpenAPI 3.1.",
        answer="the document",
    ),
)
