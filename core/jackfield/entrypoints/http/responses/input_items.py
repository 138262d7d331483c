"""Input items of OpenAI's responses to messages of a chat, and output items back to input. Knows no store and no route.

Policies
  text parts    input_text, output_text, text and refusal are text; images, files and references are refused by name, and nothing
                is fetched
  calls         function_call items that follow each other, or the assistant's message, are one message
  reasoning     goes with the assistant's message or call that follows it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jackfield.entrypoints.http.errors import ApiError
from jackfield.managers.errors import shown

_TEXT_PARTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
_ROLES = ("system", "developer", "user", "assistant")


def input_messages(given: Any, most: int) -> list[dict[str, Any]]:
    """Messages of OpenAI's chat shape. most: items. Raises ApiError naming the place."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise _refused("input", "must be a text or a list of items")
    if not given:
        raise _refused("input", "is empty: a response needs at least one item")
    if len(given) > most:
        raise _refused("input", f"holds {len(given)} items; at most {most} are allowed (--max-messages)")
    return messages_of((item, f"input[{i}]") for i, item in enumerate(given))


def messages_of(items: Iterable[tuple[Any, str]]) -> list[dict[str, Any]]:
    """items: each with the place that a refusal names."""
    messages: list[dict[str, Any]] = []
    reasoning = ""
    for item, where in items:
        if not isinstance(item, Mapping):
            raise _refused(where, "must be an object")
        match item.get("type", "message"):
            case "message":
                message = _message(item, where)
            case "function_call":
                message = {"role": "assistant", "content": None, "tool_calls": [_call(item, where)]}
            case "function_call_output":
                message = _result(item, where)
            case "reasoning":
                reasoning += _reasoning(item, where)
                continue
            case other:
                raise _refused(
                    f"{where}.type",
                    f"{shown(other)} is not supported: message, function_call, function_call_output and reasoning are",
                )
        if message["role"] == "assistant" and reasoning:
            message["reasoning_content"], reasoning = reasoning, ""
        last = messages[-1] if messages else {}
        if "tool_calls" in message and last.get("role") == "assistant":
            last.setdefault("tool_calls", []).extend(message["tool_calls"])
            if "reasoning_content" in message:
                last["reasoning_content"] = last.get("reasoning_content", "") + message["reasoning_content"]
            continue
        messages.append(message)
    return messages


def _message(item: Mapping[str, Any], where: str) -> dict[str, Any]:
    role = item.get("role")
    if role not in _ROLES:
        raise _refused(f"{where}.role", f"must be one of {', '.join(_ROLES)}")
    return {"role": role, "content": _text(item.get("content"), f"{where}.content")}


def _text(content: Any, where: str) -> str | list[dict[str, str]]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _refused(where, "must be a text or a list of parts")
    parts = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in _TEXT_PARTS:
            raise _refused(f"{where}[{i}].type", f"{shown(kind)} is not supported: this model takes text only")
        text = part.get(_TEXT_PARTS[kind])
        if not isinstance(text, str):
            raise _refused(f"{where}[{i}].{_TEXT_PARTS[kind]}", "must be a text")
        parts.append({"type": "text", "text": text})
    return parts


def _call(item: Mapping[str, Any], where: str) -> dict[str, Any]:
    for name in ("call_id", "name", "arguments"):
        if not isinstance(item.get(name), str):
            raise _refused(f"{where}.{name}", "must be a text")
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _result(item: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(item.get("call_id"), str):
        raise _refused(f"{where}.call_id", "must be a text")
    return {"role": "tool", "tool_call_id": item["call_id"], "content": _text(item.get("output"), f"{where}.output")}


def _reasoning(item: Mapping[str, Any], where: str) -> str:
    parts = item.get("content") or ()
    if not isinstance(parts, Sequence) or isinstance(parts, str):
        raise _refused(f"{where}.content", "must be a list of parts")
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise _refused(f"{where}.content", "must hold parts of type reasoning_text")
    return "".join(text for text in texts if text is not None)


def chat_tools(tools: Any) -> list[Any]:
    """Tools in the shape of chats; what is no function is left for the check there."""
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise _refused("tools", "must be a list")
    return [_chat_tool(tool) for tool in tools]


def _chat_tool(tool: Any) -> Any:
    if not isinstance(tool, Mapping) or tool.get("type") != "function" or "function" in tool:
        return tool
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {name: tool[name] for name in names if tool.get(name) is not None}}


def chat_choice(choice: Any) -> Any:
    match choice:
        case {"type": "allowed_tools", "mode": mode, "tools": tools}:
            return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}
    return choice


def chat_format(given: Any) -> Any:
    """`text.format` as `response_format`."""
    if isinstance(given, Mapping) and given.get("type") == "json_schema" and "json_schema" not in given:
        names = ("name", "description", "schema", "strict")
        return {
            "type": "json_schema",
            "json_schema": {name: given[name] for name in names if given.get(name) is not None},
        }
    return given


def _refused(where: str, what: str) -> ApiError:
    return ApiError(400, f"{where} {what}", param=where, code="invalid_value")
