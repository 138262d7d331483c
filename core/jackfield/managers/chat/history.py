"""What messages hold beside their content: calls that the assistant made, and the ids and names that tie results to them.

Templates want a call's arguments as a mapping, clients send the JSON text that they were given, and some templates join it to
other text: `Arguments` serves both. Knows no template.

Policies
  arguments   null and "" are {}; a text that is no JSON object is refused, with the message's place
  name        of a tool's message: the client's, or that of the call with its `tool_call_id`
  other fields of a message (a user's `name`, an `id`, what a client invented) do not reach the template
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from jackfield.managers.errors import RequestError, shown
from jackfield.managers.text.tokenizer import check_unicode

MAX_DEPTH = 64
"""Lists and objects within each other in a call's arguments: they are gone through by recursion, here and in templates."""

_TEXTS = ("name", "tool_call_id", "reasoning_content")


class Arguments(dict[str, Any]):
    """A mapping that is its JSON text where a template writes or joins it."""

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)

    def __add__(self, other: Any) -> Any:
        return str(self) + other if isinstance(other, str) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return other + str(self) if isinstance(other, str) else NotImplemented


def message_fields(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The checked fields of each message beside role and content. Raises RequestError naming the place."""
    names: dict[str, str] = {}
    found = []
    for i, message in enumerate(messages):
        where = f"messages[{i}]"
        fields: dict[str, Any] = {}
        for name in _TEXTS:
            if (value := message.get(name)) is not None:
                if not isinstance(value, str):
                    raise RequestError(f"{where}.{name} must be a text", param=f"{where}.{name}")
                check_unicode(value, f"{where}.{name}")
                fields[name] = value
        if message.get("role") != "tool":
            fields.pop("name", None)
        if message.get("function_call"):
            raise RequestError(
                f"{where}.function_call is not supported: use tool_calls",
                param=f"{where}.function_call",
                code="not_supported",
            )
        if message.get("tool_calls"):
            if message.get("role") != "assistant":
                raise RequestError(f"{where}.tool_calls: only the assistant makes calls", param=f"{where}.tool_calls")
            fields["tool_calls"] = _calls(message["tool_calls"], f"{where}.tool_calls")
            names |= {call["id"]: call["function"]["name"] for call in fields["tool_calls"] if "id" in call}
        if message.get("role") == "tool" and "name" not in fields and fields.get("tool_call_id") in names:
            fields["name"] = names[fields["tool_call_id"]]
        found.append(fields)
    return found


def _calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise RequestError(f"{where} must be a list of calls", param=where)
    return [_call(call, f"{where}[{i}]") for i, call in enumerate(calls)]


def _call(call: Any, where: str) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise RequestError(f"{where} must be an object with a function", param=where)
    if call.get("type") not in (None, "function"):
        raise RequestError(f"{where}.type {shown(call['type'])} is not supported: 'function' is", param=f"{where}.type")
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RequestError(f"{where}.function must be an object with a name", param=f"{where}.function")
    check_unicode(function["name"], f"{where}.function.name")
    plain: dict[str, Any] = {
        "type": "function",
        "function": {
            "name": function["name"],
            "arguments": arguments_of(function.get("arguments"), f"{where}.function.arguments"),
        },
    }
    if (given := call.get("id")) is not None:
        if not isinstance(given, str):
            raise RequestError(f"{where}.id must be a text", param=f"{where}.id")
        check_unicode(given, f"{where}.id")
        plain["id"] = given
    return plain


def arguments_of(given: Any, where: str) -> dict[str, Any]:
    """A call's arguments as a mapping. Raises RequestError."""
    if given is None or given == "":
        return {}
    value = given
    if isinstance(given, str):
        try:
            value = msgspec.json.decode(given.encode("utf-8"))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise RequestError(f"{where} is not valid JSON", param=where) from None
    if not isinstance(value, Mapping):
        raise RequestError(f"{where} must be the JSON text of an object, or an object", param=where)
    if too_deep(value, MAX_DEPTH):
        raise RequestError(f"{where} is nested deeper than {MAX_DEPTH} levels", param=where)
    return dict(value)


def too_deep(value: Any, most: int) -> bool:
    """Whether lists and objects stand deeper in each other than `most`; level by level, no recursion."""
    level = [value]
    for _ in range(most + 1):
        level = [
            item
            for holder in level
            if isinstance(holder, Mapping | list | tuple)
            for item in (holder.values() if isinstance(holder, Mapping) else holder)
        ]
        if not level:
            return False
    return True


def for_template(messages: list[dict[str, Any]]) -> None:
    """Put the arguments of calls into the form that serves every template; in place."""
    for message in messages:
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(function.get("arguments"), dict):
                function["arguments"] = Arguments(function["arguments"])
