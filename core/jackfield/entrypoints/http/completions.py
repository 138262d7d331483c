"""`/v1/completions`: a plain prompt goes on. It is the raw model: the text of a special token in a prompt is that token."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from starlette.types import ASGIApp

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import (
    Exchange,
    check_ids_count,
    check_model,
    check_prompt_count,
    finish_word,
    json_response,
    usage,
)
from jackfield.entrypoints.http.openai_common import Head, Piece, check_stream_options, pieces, sampling_params
from jackfield.entrypoints.http.schemas.openai import COMPLETION_NOT_YET, CompletionBody
from jackfield.entrypoints.http.sse import DONE, EventStream, event
from jackfield.managers.tokenizer_manager import GenerateRequest

KIND = "text_completion"
DEFAULT_MAX_TOKENS = 16
"""OpenAI's."""


async def completions(exchange: Exchange) -> ASGIApp:
    body: CompletionBody = exchange.body
    exchange.names.update(input_ids="prompt", max_new_tokens="max_tokens", min_new_tokens="min_tokens")
    check_model(exchange, body.model)
    with_usage = check_stream_options(body)
    head = Head.new(exchange, "cmpl")
    request = _request(exchange, body, head)
    service = exchange.service
    call = await service.submit(lambda: request)
    if body.stream:
        updates = service.news(call, pieces)
        return EventStream(_events(head, with_usage, await anext(updates), updates))
    answers = await service.answers(call)
    states = call.states
    choices = [
        _choice(state.index, answer["text"], finish_word(state.finish))
        for state, answer in zip(states, answers, strict=True)
    ]
    return json_response(head.object(KIND, choices, usage(states)))


def _request(exchange: Exchange, body: CompletionBody, head: Head) -> GenerateRequest:
    prompt = body.prompt
    check_prompt_count(exchange, prompt, "prompt")
    if not isinstance(prompt, str | list):
        raise ApiError(
            400,
            f"prompt must be a text, token ids, or a list of either, not {type(prompt).__name__}",
            param="prompt",
            code="invalid_value",
        )
    if not prompt:
        raise ApiError(400, "prompt is empty: a request needs at least one token", param="prompt", code="invalid_value")
    text = isinstance(prompt, str) or isinstance(prompt[0], str)
    if not text:
        check_ids_count(exchange, prompt, "prompt")
    sampling = sampling_params(body, COMPLETION_NOT_YET)
    sampling["max_new_tokens"] = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    several = isinstance(prompt, list) and isinstance(prompt[0], str | list)
    labels = head.labels(len(prompt) if several else 1)
    return GenerateRequest(
        prompt=prompt if text else None,
        input_ids=None if text else list(prompt),
        sampling_params=sampling,
        stream=bool(body.stream),
        rid=labels if several else labels[0],
        call_id=exchange.label,
        cache_salt=body.cache_salt,
        priority=body.priority,
        tenant=body.tenant,
        deadline_s=body.deadline_s,
    )


def _choice(index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}


async def _events(
    head: Head, with_usage: bool, first: list[Piece], updates: AsyncGenerator[list[Piece], None]
) -> AsyncGenerator[bytes, None]:
    try:
        tokens = None
        batch: list[Piece] | None = first
        while batch is not None:
            yield b"".join(
                event(head.object(KIND, [_choice(piece.index, piece.text, piece.finish_reason)], None))
                for piece in batch
            )
            tokens = batch[-1].usage or tokens
            batch = await anext(updates, None)
        if with_usage:
            yield event(head.object(KIND, [], tokens))
        yield DONE
    finally:
        await updates.aclose()
