"""Type of a message -> its handler, exactly; a message without one is an error here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Dispatcher:
    def __init__(self, handlers: Mapping[type, Callable[[Any], None]]) -> None:
        self._handlers = dict(handlers)

    def __call__(self, message: Any) -> None:
        handler = self._handlers.get(type(message))
        if handler is None:
            raise TypeError(f"no handler for a message of type {type(message).__name__}")
        handler(message)
