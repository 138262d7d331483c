"""The page and its parts, as files of this package. Open to everybody, because they hold nothing of the server: what the page
shows, it asks the server's other routes for, with the key that its user gives.

The page may load nothing but its own parts, run no script that stands in a text, be part of no other page, and talk to this
server alone (Content-Security-Policy): what a model writes cannot reach further than the text that it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from jackfield.hookspecs import Route, RouteAnswer, RouteError, RouteLevel, RouteRequest

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def routes() -> Sequence[Route]:
    parts = {
        part.name: RouteAnswer(
            body=part.read_bytes(), media_type=MEDIA_TYPES[part.name.rpartition(".")[2]], headers=HEADERS
        )
        for part in files("jackfield_routes_playground").joinpath("page").iterdir()
    }

    async def page(request: RouteRequest) -> RouteAnswer:
        return parts["index.html"]

    async def part(request: RouteRequest) -> RouteAnswer:
        found = parts.get(request.path["file"])
        if found is None:
            raise RouteError(404, "the playground has no such part", code="unknown_route")
        return found

    return [
        Route(
            path="/",
            methods=("GET",),
            level=RouteLevel.OPEN,
            handler=page,
            summary="The playground: a page to chat with the served model.",
            answer="the page",
            media_type="text/html",
        ),
        Route(
            path="/playground/{file}",
            methods=("GET",),
            level=RouteLevel.OPEN,
            handler=part,
            summary="A script, a style sheet or a picture of the playground.",
            answer="the file",
            media_type="*/*",
        ),
    ]
