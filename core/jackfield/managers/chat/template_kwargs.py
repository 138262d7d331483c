"""Variables of the chat template that a request may set. Knows which the operator allows, and no template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from jackfield.config.server_args import ServerArgs
from jackfield.managers.errors import RequestError, shown

_SIMPLE = (str, int, float, bool)
_FIELD = "chat_template_kwargs"


def checked_kwargs(given: Mapping[str, Any], args: ServerArgs) -> dict[str, Any]:
    """Those that are set; null is absent. Raises RequestError."""
    for name, value in given.items():
        if name not in args.chat_template_kwargs:
            allowed = ", ".join(args.chat_template_kwargs) or "none"
            raise _refused(f"{_FIELD} may not set {shown(name)}; allowed: {allowed} (--chat-template-kwargs)")
        if not isinstance(value, _SIMPLE) and value is not None:
            raise _refused(f"{_FIELD}.{name} must be a text, a number or a truth value", f"{_FIELD}.{name}")
    most = args.max_chat_template_kwargs_bytes
    if len(msgspec.json.encode(dict(given))) > most:
        raise _refused(f"{_FIELD} may have at most {most} bytes (--max-chat-template-kwargs-bytes)")
    return {name: value for name, value in given.items() if value is not None}


def _refused(message: str, param: str = _FIELD) -> RequestError:
    return RequestError(message, param=param, code="invalid_value")
