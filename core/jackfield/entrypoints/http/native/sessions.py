"""`/open_session` and `/close_session`, in SGLang's shape. Turns of a session are ordinary requests of `/generate`."""

from __future__ import annotations

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import Exchange, Reply, json_response
from jackfield.entrypoints.http.schemas.native import CloseSessionBody, OpenSessionBody


async def open_session(exchange: Exchange) -> Reply:
    body: OpenSessionBody = exchange.body
    if body.streaming not in (None, False):
        raise ApiError(400, "streaming is not supported by this version", param="streaming", code="not_supported")
    sessions = exchange.service.serving.replica.tokenizer_manager.sessions
    return json_response(
        sessions.open(
            session_id=body.session_id,
            max_tokens=body.max_tokens,
            capacity_of_str_len=body.capacity_of_str_len,
            timeout=body.timeout,
        )
    )


async def close_session(exchange: Exchange) -> Reply:
    body: CloseSessionBody = exchange.body
    sessions = exchange.service.serving.replica.tokenizer_manager.sessions
    return json_response({"closed": sessions.close(body.session_id)})
