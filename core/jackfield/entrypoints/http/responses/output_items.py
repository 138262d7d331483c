"""The events of one choice to the items and the typed events of OpenAI's responses. Knows no request, no store, no route.

An item begins when something of another sort comes, and ends then; the response's output is its items in that order. The first
message has the log-probabilities of all tokens of the answer, as far as they have come: nobody says which token made which item.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from jackfield.entrypoints.http.openai.chat_answer import logprobs_object
from jackfield.hookspecs.chat import (
    CallBegan,
    CallDelta,
    ChatEvent,
    ChoiceEnded,
    ContentDelta,
    ReasoningDelta,
    TokenEntry,
    TokensScored,
)

Event = dict[str, Any]
"""Without its sequence number."""


class ResponseOutput:
    """items: those that have begun, as they are now. ended: the choice's end, once it has come."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.ended: ChoiceEnded | None = None
        self._text: list[str] = []
        self._scored: tuple[TokenEntry, ...] = ()
        self._scores: list[dict[str, Any]] = []

    def take(self, events: Iterable[ChatEvent]) -> Iterator[Event]:
        for event in events:
            match event:
                case TokensScored():
                    self._scored += event.entries
                case ReasoningDelta():
                    yield from self._within("reasoning")
                    yield self._delta("response.reasoning_text.delta", event.text, content_index=0)
                case ContentDelta():
                    yield from self._within("message")
                    yield self._delta(
                        "response.output_text.delta", event.text, content_index=0, logprobs=self._new_scores()
                    )
                case CallBegan():
                    yield from self._end_item("completed")
                    yield from self._begin(
                        {"type": "function_call", "call_id": event.id, "name": event.name, "arguments": ""}, "fc"
                    )
                case CallDelta():
                    yield self._delta("response.function_call_arguments.delta", event.arguments)
                case ChoiceEnded():
                    self.ended = event
                    yield from self._end_item("completed" if event.reason in ("stop", "tool_calls") else "incomplete")
                    self._new_scores()
                    if (message := self._first_message()) is not None:
                        message["content"][0] = {**message["content"][0], "logprobs": self._scores}

    def _within(self, kind: str) -> Iterator[Event]:
        """Go on with the open item if it is of this kind, else begin one."""
        if self._open is not None and self._open["type"] == kind:
            return
        yield from self._end_item("completed")
        if kind == "reasoning":
            yield from self._begin({"type": "reasoning", "summary": [], "content": []}, "rs")
            yield self._part_event("response.content_part.added", {"type": "reasoning_text", "text": ""})
        else:
            yield from self._begin({"type": "message", "role": "assistant", "content": []}, "msg")
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            yield self._part_event("response.content_part.added", part)

    @property
    def _open(self) -> dict[str, Any] | None:
        last = self.items[-1] if self.items else None
        return last if last is not None and last["status"] == "in_progress" else None

    def _begin(self, item: dict[str, Any], prefix: str) -> Iterator[Event]:
        self._text = []
        item = {"id": f"{prefix}_{uuid.uuid4().hex}", **item, "status": "in_progress"}
        self.items.append(item)
        # A copy: what is told of its beginning does not change with it.
        yield {"type": "response.output_item.added", "output_index": len(self.items) - 1, "item": dict(item)}

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}

    def _delta(self, kind: str, text: str, **more: Any) -> Event:
        self._text.append(text)
        return {"type": kind, **self._place(), **more, "delta": text}

    def _part_event(self, kind: str, part: dict[str, Any]) -> Event:
        return {"type": kind, **self._place(), "content_index": 0, "part": part}

    def _new_scores(self) -> list[dict[str, Any]]:
        """Of the tokens that came since the last time."""
        if not self._scored:
            return []
        told: list[dict[str, Any]] = logprobs_object(self._scored)["content"]
        self._scored = ()
        self._scores += told
        return told

    def _first_message(self) -> dict[str, Any] | None:
        return next((item for item in self.items if item["type"] == "message"), None)

    def _end_item(self, status: str) -> Iterator[Event]:
        item = self._open
        if item is None:
            return
        text = "".join(self._text)
        match item["type"]:
            case "reasoning":
                yield {"type": "response.reasoning_text.done", **self._place(), "content_index": 0, "text": text}
                item["content"] = [{"type": "reasoning_text", "text": text}]
                yield self._part_event("response.content_part.done", item["content"][0])
            case "message":
                self._new_scores()
                scores = list(self._scores) if item is self._first_message() else []
                yield {
                    "type": "response.output_text.done",
                    **self._place(),
                    "content_index": 0,
                    "text": text,
                    "logprobs": scores,
                }
                item["content"] = [{"type": "output_text", "text": text, "annotations": [], "logprobs": scores}]
                yield self._part_event("response.content_part.done", item["content"][0])
            case "function_call":
                done = {"type": "response.function_call_arguments.done", **self._place(), "name": item["name"]}
                yield {**done, "arguments": text}
                item["arguments"] = text
        item["status"] = status
        yield {"type": "response.output_item.done", "output_index": len(self.items) - 1, "item": dict(item)}
