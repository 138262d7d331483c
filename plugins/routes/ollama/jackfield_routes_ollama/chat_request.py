"""From Ollama's requests to the runtime's neutral ones. Knows no answer.

Ollama's messages name a tool where others have the id of a call: ids are made here, and a result belongs to the first call of
its tool that has none yet.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jackfield.hookspecs import ChatRequest, RouteError, TextRequest
from jackfield_routes_ollama.schemas import Body, ChatBody, GenerateBody, InputMessage

NAMES = {
    "input_ids": "messages",
    "max_new_tokens": "options.num_predict",
    "repetition_penalty": "options.repeat_penalty",
    "response_format": "format",
    "json_schema": "format",
    "reasoning_effort": "think",
    **{
        name: f"options.{name}"
        for name in ("seed", "stop", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty")
    },
}
"""The runtime's name of a field -> Ollama's."""

AS_IT_GROWS = True
"""Whole answers are read so too: they tell how long the first token took, and the others."""

_SAME = ("seed", "temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty")
_NEUTRAL = {"mirostat": 0, "typical_p": 1, "tfs_z": 1}
_EFFORTS = ("low", "medium", "high")


def of_chat(body: ChatBody) -> ChatRequest:
    """Raises RouteError 400."""
    return ChatRequest(
        messages=_messages(body.messages), tools=body.tools or (), names=NAMES, stream=AS_IT_GROWS, **_common(body)
    )


def of_prompt(body: GenerateBody) -> ChatRequest | TextRequest:
    """Raises RouteError 400."""
    for name in ("suffix", "template", "context", "images"):
        if getattr(body, name):
            raise _refused(name, f"{name} is not supported here")
    names = {**NAMES, "input_ids": "prompt", "messages": "prompt"}
    if body.raw:
        if body.format:
            raise _refused("format", "format is not supported with raw: the prompt is the model's whole text")
        return TextRequest(prompt=body.prompt, sampling=_sampling(body), stream=AS_IT_GROWS, names=names)
    messages: list[dict[str, Any]] = [{"role": "user", "content": body.prompt}]
    if body.system:
        messages.insert(0, {"role": "system", "content": body.system})
    return ChatRequest(messages=messages, names=names, stream=AS_IT_GROWS, **_common(body))


def _common(body: Body) -> dict[str, Any]:
    think = body.think
    if think is not None and not isinstance(think, bool) and think not in _EFFORTS:
        raise _refused("think", "think must be true, false, low, medium or high")
    return {
        "sampling": _sampling(body),
        "response_format": _format(body.format),
        "reasoning": think if think is None or isinstance(think, bool) else True,
        "reasoning_effort": think if isinstance(think, str) else None,
    }


def _format(given: Any) -> dict[str, Any] | None:
    if given is None or given == "":
        return None
    if given == "json":
        return {"type": "json_object"}
    if isinstance(given, dict):
        return {"type": "json_schema", "json_schema": {"name": "format", "schema": given}}
    raise _refused("format", "format must be json or a JSON schema")


def _sampling(body: Body) -> dict[str, Any]:
    options = body.options
    if options is None:
        return {}
    for name, neutral in _NEUTRAL.items():
        if getattr(options, name) not in (None, neutral):
            raise _refused(f"options.{name}", f"options.{name} is not supported here")
    sampling = {name: getattr(options, name) for name in _SAME if getattr(options, name) is not None}
    if options.num_predict is not None and options.num_predict >= 0:
        sampling["max_new_tokens"] = options.num_predict
    if options.repeat_penalty is not None:
        sampling["repetition_penalty"] = options.repeat_penalty
    if options.top_k is not None:
        sampling["top_k"] = -1 if options.top_k == 0 else options.top_k
    if options.stop:
        sampling["stop"] = options.stop
    return sampling


def _messages(given: Sequence[InputMessage]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    unanswered: list[tuple[str, str]] = []  # id and name of each call without its result
    for i, message in enumerate(given):
        if message.images:
            raise _refused(f"messages[{i}].images", f"messages[{i}].images: the served model reads text only")
        made: dict[str, Any] = {"role": message.role, "content": message.content or ""}
        if message.thinking:
            made["reasoning_content"] = message.thinking
        if message.tool_calls:
            made["tool_calls"] = []
            for j, call in enumerate(message.tool_calls):
                id = f"call_{i}_{j}"
                unanswered.append((id, call.function.name))
                function = {
                    "name": call.function.name,
                    "arguments": json.dumps(call.function.arguments, ensure_ascii=False),
                }
                made["tool_calls"].append({"id": id, "type": "function", "function": function})
        if message.role == "tool":
            place = next((k for k, (_, name) in enumerate(unanswered) if message.tool_name in (None, name)), None)
            if place is not None:
                made["tool_call_id"] = unanswered.pop(place)[0]
            if message.tool_name:
                made["name"] = message.tool_name
        messages.append(made)
    return messages


def _refused(param: str, text: str) -> RouteError:
    return RouteError(400, text, param=param, code="invalid_value")
