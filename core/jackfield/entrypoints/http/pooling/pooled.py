"""What the routes for embeddings, labels and scores do alike: what may be sent, the call, and answers made beside the loop."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from jackfield.entrypoints.calls import raise_unless_complete
from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import (
    Exchange,
    Reply,
    check_ids_count,
    check_model,
    check_prompt_count,
)
from jackfield.entrypoints.http.schemas.pooling import Scheduled
from jackfield.hookspecs import Pooling, RouteAnswer
from jackfield.managers.requests.pooled_request import AnyRequest
from jackfield.managers.requests.req_state import ReqState

_encode = msgspec.json.Encoder().encode


def pooling_of(exchange: Exchange) -> Pooling | None:
    return exchange.service.serving.replica.tokenizer_manager.limits.pooling


def scheduled(exchange: Exchange, body: Scheduled) -> dict[str, Any]:
    """The fields of a request that all routes have, and a check of the model's name."""
    check_model(exchange, body.model)
    exchange.names.update(truncate="truncate_prompt_tokens")
    names = ("cache_salt", "priority", "tenant", "deadline_s")
    return {"call_id": exchange.label, **{name: getattr(body, name) for name in names}}


def input_fields(exchange: Exchange, given: Any, name: str, *, cut: bool = False) -> dict[str, Any]:
    """`prompt` or `input_ids` of a request, of a text, ids, or a list of either. cut: ids beyond the context are no error."""
    exchange.names.update(prompt=name, input_ids=name)
    check_prompt_count(exchange, given, name)
    if not isinstance(given, str | list):
        raise ApiError(
            400,
            f"{name} must be a text, token ids, or a list of either, not {type(given).__name__}",
            param=name,
            code="invalid_value",
        )
    if not given or (isinstance(given, list) and "" in given):
        raise ApiError(400, f"{name} is empty, or holds an empty text", param=name, code="invalid_value")
    if isinstance(given, str) or isinstance(given[0], str):
        return {"prompt": given}
    if not cut:
        check_ids_count(exchange, given, name)
    return {"input_ids": given}


async def finished(exchange: Exchange, make: Callable[[], AnyRequest]) -> list[ReqState]:
    """The complete states of a call. Raises RequestError, ApiError; a caller that is cancelled ends the call."""
    call = await exchange.submit(make)
    states = await exchange.service.answers(call, lambda state: state)
    for state in states:
        raise_unless_complete(state)
    return states


async def answered(exchange: Exchange, make: Callable[[], Any]) -> Reply:
    """The answer that `make` gives, made and encoded on a thread: vectors are many numbers, and others' streams go on."""
    return RouteAnswer(body=await exchange.service.in_thread(lambda: _encode(make())))


def head(exchange: Exchange, prefix: str) -> dict[str, Any]:
    """id, created and model of an answer."""
    return {
        "id": f"{prefix}-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": exchange.service.serving.replica.model_name,
    }


def pooled_usage(states: Sequence[ReqState]) -> dict[str, int]:
    count = sum(state.prompt_tokens for state in states)
    return {"prompt_tokens": count, "total_tokens": count}
