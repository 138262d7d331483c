"""The one exception that ends a single request because of what the client asked. Knows no transport."""

from __future__ import annotations


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
