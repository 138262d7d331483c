"""From a request of the Messages API to the runtime's neutral one. Knows no answer.

Policies: what only Anthropic's servers could do is refused by name; a thinking block becomes the message's reasoning, and a
redacted one is skipped; neighbours of one role are one message; nothing is fetched, whatever a block points at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from jackfield.hookspecs import ChatRequest, RouteError
from jackfield_routes_anthropic.schemas import (
    CountBody,
    DocumentBlock,
    ImageBlock,
    InputMessage,
    MessagesBody,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)

NAMES = {
    "input_ids": "messages",
    "max_new_tokens": "max_tokens",
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "json_schema": "output_config.format",
    "reasoning_effort": "output_config.effort",
}
"""The runtime's name of a field -> Anthropic's."""


def chat_request(body: CountBody, context_length: int) -> ChatRequest:
    """Raises RouteError 400."""
    messages = list(_system(body)) + _merged(_messages(body.messages))
    more: dict[str, Any] = {}
    if isinstance(body, MessagesBody):
        more = {"sampling": _sampling(body, context_length), "stream": bool(body.stream)}
        thinking = body.thinking
        budget = None if thinking is None or thinking.type != "enabled" else thinking.budget_tokens
        if budget is not None and budget >= body.max_tokens:
            raise RouteError(400, "thinking.budget_tokens must be less than max_tokens", param="thinking.budget_tokens")
    config = body.output_config
    if config is not None and config.format is not None:
        schema = {"name": "output", "schema": config.format.schema_, "strict": True}
        more["response_format"] = {"type": "json_schema", "json_schema": schema}
    choice = body.tool_choice
    return ChatRequest(
        messages=messages,
        tools=[
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description or "",
                    "parameters": tool.input_schema,
                    "strict": bool(tool.strict),
                },
            }
            for tool in body.tools or ()
        ],
        tool_choice=_tool_choice(body),
        parallel_tool_calls=not (choice is not None and choice.disable_parallel_tool_use),
        reasoning=_reasoning(body),
        reasoning_effort=None if config is None else config.effort,
        continue_final_message=_goes_on(messages),
        names=NAMES,
        **more,
    )


def _sampling(body: MessagesBody, context_length: int) -> dict[str, Any]:
    sampling: dict[str, Any] = {
        name: getattr(body, name) for name in ("temperature", "top_p", "top_k") if getattr(body, name) is not None
    }
    if body.max_tokens < context_length:
        sampling["max_new_tokens"] = body.max_tokens
    if body.stop_sequences:
        sampling["stop"] = list(body.stop_sequences)
    return sampling


def _reasoning(body: CountBody) -> bool | None:
    kind = "disabled" if body.thinking is None else body.thinking.type
    return {"enabled": True, "disabled": False, "adaptive": None}[kind]


def _tool_choice(body: CountBody) -> str | dict[str, Any] | None:
    choice = body.tool_choice
    if choice is None:
        return None
    if choice.type == "tool":
        if not choice.name:
            raise RouteError(400, "tool_choice.name is missing: type tool names one", param="tool_choice.name")
        return {"type": "function", "function": {"name": choice.name}}
    return {"auto": "auto", "any": "required", "none": "none"}[choice.type]


def _system(body: CountBody) -> Iterator[dict[str, Any]]:
    if body.system:
        content = body.system if isinstance(body.system, str) else [_text(block) for block in body.system]
        yield {"role": "system", "content": content}


def _messages(given: Sequence[InputMessage]) -> Iterator[dict[str, Any]]:
    for i, message in enumerate(given):
        where = f"messages[{i}].content"
        if isinstance(message.content, str):
            yield {"role": message.role, "content": [{"type": "text", "text": message.content}]}
        elif message.role == "user":
            yield from _of_user(message.content, where)
        else:
            yield _of_assistant(message.content, where)


def _of_user(blocks: Sequence[Any], where: str) -> Iterator[dict[str, Any]]:
    """Results first come first; text between them stays where it is."""
    for i, block in enumerate(blocks):
        here = f"{where}[{i}]"
        if isinstance(block, TextBlock):
            yield {"role": "user", "content": [_text(block)]}
        elif isinstance(block, ToolResultBlock):
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": _result(block, here)}
        else:
            _refuse(block, here, "user")


def _of_assistant(blocks: Sequence[Any], where: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": []}
    for i, block in enumerate(blocks):
        if isinstance(block, TextBlock):
            message["content"].append(_text(block))
        elif isinstance(block, ThinkingBlock):
            message["reasoning_content"] = message.get("reasoning_content", "") + block.thinking
        elif isinstance(block, ToolUseBlock):
            call = {"name": block.name, "arguments": json.dumps(block.input, ensure_ascii=False)}
            message.setdefault("tool_calls", []).append({"id": block.id, "type": "function", "function": call})
        elif block.type != "redacted_thinking":
            _refuse(block, f"{where}[{i}]", "assistant")
    return message


def _result(block: ToolResultBlock, where: str) -> str:
    if isinstance(block.content, str):
        text = block.content
    else:
        parts = []
        for i, part in enumerate(block.content or ()):
            if not isinstance(part, TextBlock):
                _refuse(part, f"{where}.content[{i}]", "user")
            else:
                parts.append(part.text)
        text = "\n".join(parts)
    return f"Error: {text}" if block.is_error else text


def _refuse(block: Any, where: str, role: str) -> None:
    if isinstance(block, ImageBlock | DocumentBlock):
        text = f"{where} is of type {block.type}, and the served model reads text only"
    else:
        text = f"{where}: a block of type {block.type} does not belong into a message of the {role}"
    raise RouteError(400, text, param=where, code="invalid_value")


def _text(block: TextBlock) -> dict[str, Any]:
    return {"type": "text", "text": block.text}


def _merged(messages: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbours of one role as one message, as Anthropic reads them; results of tools stay apart."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if found and found[-1]["role"] == message["role"] == "user":
            found[-1]["content"] += message["content"]
        elif found and found[-1]["role"] == message["role"] == "assistant" and "tool_calls" not in found[-1]:
            found[-1]["content"] += message["content"]
            found[-1].update({name: value for name, value in message.items() if name not in ("role", "content")})
        else:
            found.append(message)
    return found


def _goes_on(messages: Sequence[dict[str, Any]]) -> bool:
    last = messages[-1]
    if last["role"] != "assistant":
        return False
    if "tool_calls" in last:
        raise RouteError(
            400, "messages: the last one calls tools, and no message brings their results", param="messages"
        )
    return True
