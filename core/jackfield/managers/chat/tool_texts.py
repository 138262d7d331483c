"""Tools in the words of a system message, for chat templates that do not know of any.

A template that ignores `tools` would leave the model without the functions that it is asked to call. Knows no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jackfield.managers.chat.response_format import json_text

_BEGIN = "You may call the following functions. Each is described by one line of JSON:\n"


def with_tools_in_words(
    messages: Sequence[dict[str, Any]], tools: Sequence[Mapping[str, Any]], *, parts: bool
) -> list[dict[str, Any]]:
    """Plain messages, with the tools behind the text of a first system message, or in one of their own.

    parts: contents are lists of text parts
    """
    words = _BEGIN + "\n".join(json_text(tool.get("function", tool)) for tool in tools)
    if not messages or messages[0].get("role") != "system":
        return [{"role": "system", "content": [_part(words)] if parts else words}, *messages]
    first = messages[0]
    content, more = first["content"], f"\n\n{words}" if first["content"] else words
    told = content + more if isinstance(content, str) else [*content, _part(more)]
    return [{**first, "content": told}, *messages[1:]]


def _part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
