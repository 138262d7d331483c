"""The one exception that ends a single request because of what the client asked. Knows no transport."""

from __future__ import annotations

from typing import Any

SHOWN = 80
"""Characters of a client's value that a message repeats: an answer is not as long as what was wrong with the request."""


class RequestError(Exception):
    """A request that cannot be served. `message` reaches the client; `param` names the field."""

    def __init__(
        self, message: str, *, param: str | None = None, status_code: int = 400, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status_code = status_code
        self.code = code


def shown(value: Any) -> str:
    """The value as a message repeats it: its `repr`, cut."""
    text = repr(value[:SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
