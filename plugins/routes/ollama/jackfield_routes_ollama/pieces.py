"""From the events of an answer to Ollama's pieces: text and thinking as they come, a call when it is complete, and the end in a
piece of its own, so that no text is in it and none can be lost with it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from jackfield.hookspecs import (
    CallBegan,
    CallDelta,
    ChatEvent,
    ChatUsage,
    ChoiceEnded,
    ContentDelta,
    ReasoningDelta,
    RouteError,
)

Piece = dict[str, Any]
"""content, thinking, tool_calls: those of them that came."""


class Pieces:
    """One answer."""

    def __init__(self) -> None:
        self._ended: ChoiceEnded | None = None
        self._call: CallBegan | None = None
        self._arguments: list[str] = []

    def of(self, batch: Sequence[ChatEvent]) -> Iterator[Piece]:
        for event in batch:
            match event:
                case ContentDelta():
                    yield from self._called()
                    if event.text:
                        yield {"content": event.text}
                case ReasoningDelta():
                    if event.text:
                        yield {"content": "", "thinking": event.text}
                case CallBegan():
                    yield from self._called()
                    self._call = event
                case CallDelta():
                    self._arguments.append(event.arguments)
                case ChoiceEnded():
                    yield from self._called()
                    self._ended = event

    @property
    def done_reason(self) -> str:
        """Raises RouteError if nobody let it end."""
        if self._ended is None or self._ended.reason == "abort":
            raise RouteError(503, "the request was ended by an operator", code="aborted")
        return "length" if self._ended.reason == "length" else "stop"

    def _called(self) -> Iterator[Piece]:
        if self._call is None:
            return
        text = "".join(self._arguments)
        function = {"name": self._call.name, "arguments": _arguments(text)}
        yield {"content": "", "tool_calls": [{"id": self._call.id, "function": function}]}
        self._call = None
        self._arguments = []


def _arguments(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    # Of a call that was cut off, what there is.
    return value if isinstance(value, dict) else {"INVALID_JSON": text}


def joined(pieces: Sequence[Piece]) -> Piece:
    """All of them as one."""
    whole: Piece = {"content": "".join(piece["content"] for piece in pieces)}
    if thinking := "".join(piece.get("thinking", "") for piece in pieces):
        whole["thinking"] = thinking
    if calls := [call for piece in pieces for call in piece.get("tool_calls", ())]:
        whole["tool_calls"] = calls
    return whole


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Stopwatch:
    """From the arrival of a request to its first token and its end, in nanoseconds."""

    def __init__(self) -> None:
        self._began = time.perf_counter_ns()
        self._first = self._began

    def first(self) -> None:
        self._first = time.perf_counter_ns()

    def told(self, usage: ChatUsage, reason: str) -> dict[str, Any]:
        """The fields of the last piece."""
        over = time.perf_counter_ns()
        return {
            "done": True,
            "done_reason": reason,
            "total_duration": over - self._began,
            "load_duration": 0,
            "prompt_eval_count": usage.prompt_tokens,
            "prompt_eval_duration": self._first - self._began,
            "eval_count": usage.completion_tokens,
            "eval_duration": over - self._first,
        }
