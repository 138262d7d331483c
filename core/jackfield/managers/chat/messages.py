"""Chat messages as a client sent them, checked, and with the content that a template reads.

Policies: content null is ""; for a template that reads strings, several text parts are joined with a space, as SGLang
does it; parts other than text are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jackfield.managers.chat.content_format import ContentFormat
from jackfield.managers.errors import RequestError, shown
from jackfield.managers.text.tokenizer import check_unicode


def plain_messages(messages: Any, wanted: ContentFormat, most: int) -> list[dict[str, Any]]:
    """A checked copy, with content as the template reads it. most: messages. Raises RequestError naming the place."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise RequestError("messages must be a list of messages", param="messages")
    if not messages:
        raise RequestError("messages is empty: a chat needs at least one message", param="messages")
    if len(messages) > most:
        raise RequestError(
            f"messages holds {len(messages)} entries; at most {most} are allowed (--max-messages)", param="messages"
        )
    return [_plain_message(message, f"messages[{i}]", wanted) for i, message in enumerate(messages)]


def _plain_message(message: Any, where: str, wanted: ContentFormat) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{where} must be an object with role and content", param=where)
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise RequestError(f"{where}.role must be a text such as 'user'", param=f"{where}.role")
    check_unicode(role, f"{where}.role")
    # Templates tell an absent field from one that is null, and clients send null for "absent".
    plain = {name: value for name, value in message.items() if value is not None}
    plain["content"] = _plain_content(message.get("content"), f"{where}.content", wanted)
    return plain


def _plain_content(content: Any, where: str, wanted: ContentFormat) -> str | list[dict[str, Any]]:
    if content is None:
        content = ""
    if isinstance(content, str):
        check_unicode(content, where)
        # A template that only loops would take a string apart into its characters.
        wrap = wanted.kind == "openai" and not wanted.takes_both
        return [{"type": "text", "text": content}] if wrap else content
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise RequestError(f"{where} must be a text or a list of parts", param=where)
    parts = [_plain_part(part, f"{where}[{i}]") for i, part in enumerate(content)]
    if wanted.kind == "openai":
        return parts
    return " ".join(part["text"] for part in parts)


def _plain_part(part: Any, where: str) -> dict[str, Any]:
    if not isinstance(part, Mapping):
        raise RequestError(f"{where} must be an object with a type", param=where)
    if part.get("type") != "text":
        raise RequestError(
            f"{where}.type {shown(part.get('type'))} is not supported: this model takes parts of type 'text' only",
            param=f"{where}.type",
        )
    text = part.get("text")
    if not isinstance(text, str):
        raise RequestError(f"{where}.text must be a text", param=f"{where}.text")
    check_unicode(text, f"{where}.text")
    return {"type": "text", "text": text}
