"""Which variables of the chat template a request may set, and how long they may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import Exchange

_SIMPLE = (str, int, float, bool)


def checked_template_kwargs(exchange: Exchange, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """What was sent as `chat_template_kwargs`, without what is null. Raises ApiError naming the variable."""
    args = exchange.service.args
    kwargs = given or {}
    for name, value in kwargs.items():
        if name not in args.chat_template_kwargs:
            allowed = ", ".join(args.chat_template_kwargs) or "none"
            raise ApiError(
                400,
                f"chat_template_kwargs may not set {name[:80]!r}; allowed: {allowed} (--chat-template-kwargs)",
                param="chat_template_kwargs",
                code="invalid_value",
            )
        if not isinstance(value, _SIMPLE) and value is not None:
            raise ApiError(
                400,
                f"chat_template_kwargs.{name} must be a text, a number or a truth value",
                param=f"chat_template_kwargs.{name}",
                code="invalid_value",
            )
    if len(msgspec.json.encode(kwargs)) > args.max_chat_template_kwargs_bytes:
        raise ApiError(
            400,
            f"chat_template_kwargs may have at most {args.max_chat_template_kwargs_bytes} bytes "
            "(--max-chat-template-kwargs-bytes)",
            param="chat_template_kwargs",
            code="invalid_value",
        )
    return {name: value for name, value in kwargs.items() if value is not None}
