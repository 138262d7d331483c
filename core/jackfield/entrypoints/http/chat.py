"""`/v1/chat/completions`: messages through the model's own template.

Policies: contents of messages are text, never control tokens; a message's other fields (`name`, ids) are ignored; the role
`developer` is `system`; a last message of the assistant is followed by a new turn unless `continue_final_message` is true;
without a limit the answer may fill the context.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import GOES_ON, Exchange, Reply, check_model, ending, json_response, usage
from jackfield.entrypoints.http.openai_common import Head, Piece, check_stream_options, pieces, sampling_params
from jackfield.entrypoints.http.openai_logprobs import ChatLogprobs, chat_fields
from jackfield.entrypoints.http.schemas.openai import CHAT_NOT_YET, ChatBody, Message
from jackfield.entrypoints.http.sse import DONE, EventStream, event
from jackfield.entrypoints.http.template_kwargs import checked_template_kwargs
from jackfield.managers.requests.capacity import check_capacity
from jackfield.managers.requests.generate_request import GenerateRequest
from jackfield.managers.requests.req_state import ReqState

KIND, CHUNK = "chat.completion", "chat.completion.chunk"


async def chat_completions(exchange: Exchange) -> Reply:
    body: ChatBody = exchange.body
    limit = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    exchange.names.update(input_ids="messages", max_new_tokens=limit, min_new_tokens="min_tokens")
    check_model(exchange, body.model)
    with_usage = check_stream_options(body)
    _check(body)
    template_kwargs = checked_template_kwargs(exchange, body.chat_template_kwargs)
    head = Head.new(exchange, "chatcmpl")
    service = exchange.service
    logprobs = chat_fields(exchange, body)
    call = await exchange.submit(lambda: _request(exchange, body, head, logprobs, template_kwargs))
    tell = ChatLogprobs(service.serving.replica.tokenizer_manager.tokenizer)
    if body.stream:
        updates = service.news(call, lambda states: pieces(states, tell))
        return EventStream(_events(head, len(call.states), with_usage, await anext(updates), updates))
    choices = await service.answers(call, lambda state: _choice(state, state.text, tell(state)))
    return json_response(head.object(KIND, choices, usage(call.states)))


def _choice(state: ReqState, text: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "refusal": None}
    return {"index": state.index, "message": message, "logprobs": logprobs, **ending(state.finish)}


def _check(body: ChatBody) -> None:
    for i, message in enumerate(body.messages):
        for name in ("tool_calls", "function_call"):
            if getattr(message, name):
                where = f"messages[{i}].{name}"
                raise ApiError(400, f"{where} is not supported by this version", param=where, code="not_supported")


def _request(
    exchange: Exchange, body: ChatBody, head: Head, logprobs: dict[str, Any], template_kwargs: dict[str, Any]
) -> GenerateRequest:
    """Renders and tokenizes, so it runs on a thread."""
    replica = exchange.service.serving.replica
    ids = replica.template_manager.encode(
        [_message(message) for message in body.messages],
        continue_final_message=bool(body.continue_final_message),
        template_kwargs=template_kwargs,
    )
    sampling = sampling_params(body, CHAT_NOT_YET)
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    if limit is None:
        limits = replica.tokenizer_manager.limits
        limit = check_capacity(
            len(ids),
            limits.context_length,
            context_length=limits.context_length,
            total_slots=limits.total_slots,
            page_size=limits.page_size,
        )
    sampling["max_new_tokens"] = limit
    return GenerateRequest(
        input_ids=ids,
        sampling_params=sampling,
        stream=bool(body.stream),
        rid=head.id,
        call_id=exchange.label,
        cache_salt=body.cache_salt,
        priority=body.priority,
        tenant=body.tenant,
        deadline_s=body.deadline_s,
        **logprobs,
    )


def _message(message: Message) -> dict[str, Any]:
    return {"role": "system" if message.role == "developer" else message.role, "content": message.content}


def _chunk(
    head: Head,
    index: int,
    delta: dict[str, Any],
    end: dict[str, Any] | None,
    logprobs: dict[str, Any] | None = None,
) -> bytes:
    choice = {"index": index, "delta": delta, "logprobs": logprobs, **(end or GOES_ON)}
    return event(head.object(CHUNK, [choice], None))


async def _events(
    head: Head, choices: int, with_usage: bool, first: list[Piece], updates: AsyncGenerator[list[Piece], None]
) -> AsyncGenerator[bytes, None]:
    try:
        yield b"".join(_chunk(head, i, {"role": "assistant", "content": ""}, None) for i in range(choices))
        tokens = None
        batch: list[Piece] | None = first
        while batch is not None:
            for piece in batch:
                logprobs = piece.logprobs if piece.logprobs and piece.logprobs["content"] else None
                if piece.text or logprobs is not None:
                    yield _chunk(head, piece.index, {"content": piece.text}, None, logprobs)
                if piece.ending is not None:
                    yield _chunk(head, piece.index, {}, piece.ending)
                tokens = piece.usage or tokens
            batch = await anext(updates, None)
        if with_usage:
            yield event(head.object(CHUNK, [], tokens))
        yield DONE
    finally:
        await updates.aclose()
