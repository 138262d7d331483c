"""Server-sent events, as the OpenAI and SGLang clients read them: `data: JSON`, an empty line, and `data: [DONE]` last."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec

from jackfield.hookspecs import RouteStream

DONE = b"data: [DONE]\n\n"

_encoder = msgspec.json.Encoder()


def event(value: Any) -> bytes:
    return b"data: " + _encoder.encode(value) + b"\n\n"


class ChoiceEvents:
    """Events of one stream that differ in their one choice alone. What stays the same is encoded once.

    of: such an event's object, with `choices` an empty list
    """

    def __init__(self, of: Mapping[str, Any]) -> None:
        self._before, _, self._after = event(of).partition(b'"choices":[')
        self._before += b'"choices":['

    def event(self, choice: Mapping[str, Any]) -> bytes:
        return self._before + _encoder.encode(choice) + self._after


class EventStream(RouteStream):
    """A generator of finished events as an answer. An error in it becomes the last event: the status has been sent.

    After an error there is no `[DONE]`: a client must not take the answer for complete.
    """

    def __init__(self, events: AsyncGenerator[bytes, None], headers: dict[str, str] | None = None) -> None:
        super().__init__(chunks=events, headers=headers or {})
