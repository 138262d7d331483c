"""The two routes and their handlers."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from jackfield.hookspecs import (
    ChatEvent,
    ChatRun,
    ChoiceEnded,
    Route,
    RouteAnswer,
    RouteError,
    RouteLevel,
    RouteRequest,
    RouteStream,
    Runtime,
)
from jackfield_routes_anthropic.answers import Error, Message, StreamEvent, TokenCount
from jackfield_routes_anthropic.blocks import Blocks, joined, usage
from jackfield_routes_anthropic.chat_request import chat_request
from jackfield_routes_anthropic.errors import error_body
from jackfield_routes_anthropic.examples import EXAMPLES
from jackfield_routes_anthropic.options import AnthropicOptions
from jackfield_routes_anthropic.schemas import CountBody, MessagesBody


def routes(options: AnthropicOptions) -> Sequence[Route]:
    common: dict[str, Any] = {
        "methods": ("POST",),
        "level": RouteLevel.KEY,
        "generates": True,
        "ceilings": {"messages": "max_messages", "tools": "max_tools"},
        "error_body": error_body,
        "error": Error,
        "id_header": "request-id",
    }
    return [
        Route(
            path="/v1/messages",
            handler=partial(messages, options),
            summary="Anthropic's messages, through the model's chat template.",
            request=MessagesBody,
            examples=EXAMPLES,
            response=Message,
            stream=StreamEvent,
            **common,
        ),
        Route(
            path="/v1/messages/count_tokens",
            handler=partial(count_tokens, options),
            summary="How many tokens a conversation has, with the header of the answer's turn.",
            request=CountBody,
            examples=({"model": "m", "messages": [{"role": "user", "content": "Hello"}]},),
            response=TokenCount,
            **common,
        ),
    ]


async def count_tokens(options: AnthropicOptions, request: RouteRequest) -> RouteAnswer:
    body: CountBody = request.body
    _check_model(options, request.runtime, body.model)
    asked = chat_request(body, request.runtime.model.context_length)
    return RouteAnswer(body={"input_tokens": await request.runtime.count_tokens(asked)})


async def messages(options: AnthropicOptions, request: RouteRequest) -> RouteAnswer | RouteStream:
    body: MessagesBody = request.body
    _check_model(options, request.runtime, body.model)
    context_length = request.runtime.model.context_length
    run = await request.runtime.chat(chat_request(body, context_length))
    news = run.events()
    first = await anext(news)
    head: dict[str, Any] = {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": body.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    over = body.max_tokens >= context_length
    if body.stream:
        label = request.label
        return RouteStream(
            chunks=_stream(run, head, over, first, news), last_words=lambda error: _event(error_body(error, label))
        )
    blocks = Blocks()
    events = list(blocks.events(first))
    async for batch in news:
        events.extend(blocks.events(batch))
    ending = _ending(blocks.ended, over)
    return RouteAnswer(body={**head, "content": joined(events), **ending, "usage": usage(run.usage())})


def _check_model(options: AnthropicOptions, runtime: Runtime, name: str) -> None:
    served = runtime.model.name
    if name != served and not options.any_model:
        raise RouteError(
            404,
            f"model: {name[:200]!r} is not served here; {served!r} is (the option routes.anthropic.any_model takes any name)",
            param="model",
            code="model_not_found",
        )


def _ending(ended: ChoiceEnded | None, over: bool) -> dict[str, Any]:
    """over: the limit was the context's, not the client's."""
    if ended is None or ended.reason == "abort":
        raise RouteError(503, "the request was ended by an operator", code="aborted")
    if ended.reason == "tool_calls":
        reason = "tool_use"
    elif ended.reason == "length":
        reason = "model_context_window_exceeded" if over else "max_tokens"
    else:
        reason = "stop_sequence" if isinstance(ended.matched, str) else "end_turn"
    return {"stop_reason": reason, "stop_sequence": ended.matched if reason == "stop_sequence" else None}


async def _stream(
    run: ChatRun,
    head: dict[str, Any],
    over: bool,
    first: Sequence[ChatEvent],
    news: AsyncGenerator[Sequence[ChatEvent], None],
) -> AsyncGenerator[bytes, None]:
    blocks = Blocks()
    batch: Sequence[ChatEvent] | None = first
    async with aclosing(news):
        begun = {**usage(run.usage()), "output_tokens": 0}
        pieces = [_event({"type": "message_start", "message": {**head, "usage": begun}})]
        while batch is not None:
            pieces += map(_event, blocks.events(batch))
            if pieces:
                yield b"".join(pieces)
            pieces = []
            batch = await anext(news, None)
    delta = _ending(blocks.ended, over)
    end = _event({"type": "message_delta", "delta": delta, "usage": usage(run.usage())})
    yield end + _event({"type": "message_stop"})


def _event(value: dict[str, Any]) -> bytes:
    return f"event: {value['type']}\ndata: {json.dumps(value, ensure_ascii=False)}\n\n".encode()
