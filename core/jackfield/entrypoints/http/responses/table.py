"""OpenAI's responses."""

from __future__ import annotations

from jackfield.entrypoints.http.responses import routes
from jackfield.entrypoints.http.schemas import responses
from jackfield.hookspecs import Route
from jackfield.hookspecs import RouteLevel as Level

RESPONSES: tuple[Route, ...] = (
    Route(
        path="/v1/responses",
        methods=("POST",),
        level=Level.KEY,
        handler=routes.create_response,
        summary="OpenAI's responses, over the same chats.",
        request=responses.ResponseBody,
        response=responses.Response,
        stream=responses.ResponseEvent,
        ceilings={"input": "max_messages", "tools": "max_tools"},
        generates=True,
    ),
    Route(
        path="/v1/responses/{response_id}",
        methods=("GET", "DELETE"),
        level=Level.KEY,
        handler=routes.stored_response,
        summary="GET: a stored response. DELETE: forget it; one that is still written ends. 404 if it is not there (any more).",
        answer="the response, as it was answered; for DELETE id, object and `deleted: true`",
    ),
    Route(
        path="/v1/responses/{response_id}/cancel",
        methods=("POST",),
        level=Level.KEY,
        handler=routes.cancel_response,
        summary="End a response that runs in the background.",
        response=responses.Response,
    ),
)
