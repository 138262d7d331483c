"""The body of an OpenAI chat as the neutral `ChatRequest`. Knows OpenAI's names; what they may say is checked by the pipeline."""

from __future__ import annotations

from typing import Any

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import Exchange
from jackfield.entrypoints.http.openai.common import sampling_params
from jackfield.entrypoints.http.openai.logprobs import chat_logprobs
from jackfield.entrypoints.http.schemas.openai_chat import ChatBody, Message
from jackfield.hookspecs.chat import ChatRequest


def chat_request(exchange: Exchange, body: ChatBody) -> ChatRequest:
    """Raises ApiError naming the field."""
    for name in ("functions", "function_call"):
        if getattr(body, name) not in (None, [], "none", "auto"):
            instead = "tools" if name == "functions" else "tool_choice"
            raise ApiError(
                400, f"{name} is not supported: use {instead}, its successor", param=name, code="not_supported"
            )
    limit = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    return ChatRequest(
        messages=[message_fields(message) for message in body.messages],
        tools=_list(body.tools, "tools"),
        tool_choice=body.tool_choice,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        response_format=body.response_format,
        sampling=_sampling(body),
        stream=bool(body.stream),
        reasoning_effort=body.reasoning_effort,
        separate_reasoning=body.separate_reasoning is not False,
        stream_reasoning=body.stream_reasoning is not False,
        continue_final_message=bool(body.continue_final_message),
        template_kwargs=body.chat_template_kwargs or {},
        logprobs=chat_logprobs(exchange, body),
        cache_salt=body.cache_salt,
        priority=body.priority,
        tenant=body.tenant,
        deadline_s=body.deadline_s,
        names={
            "input_ids": "messages",
            "max_new_tokens": limit,
            "min_new_tokens": "min_tokens",
            "return_logprob": "logprobs",
            "top_logprobs_num": "top_logprobs",
        },
    )


def message_fields(message: Message) -> dict[str, Any]:
    """Its fields that are set; contents are not copied, as they may be long."""
    return {name: value for name in Message.model_fields if (value := getattr(message, name)) is not None}


def _sampling(body: ChatBody) -> dict[str, Any]:
    sampling = sampling_params(body, ())
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    if limit is not None:
        sampling["max_new_tokens"] = limit
    return sampling


def _list(value: Any, name: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise ApiError(400, f"{name} must be a list", param=name, code="invalid_value")
    return value or []
