"""From the events of an answer to content blocks, in the order in which the model wrote them. Streams and complete answers
both are made of the events that `Blocks` gives, so that they cannot differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from jackfield.hookspecs import CallBegan, CallDelta, ChatEvent, ChatUsage, ChoiceEnded, ContentDelta, ReasoningDelta


class Blocks:
    """One answer. ended: the event that ended it."""

    def __init__(self) -> None:
        self.ended: ChoiceEnded | None = None
        self._index = -1
        self._open: str | None = None

    def events(self, batch: Sequence[ChatEvent]) -> Iterator[dict[str, Any]]:
        """Anthropic's events of these of the runtime."""
        for event in batch:
            match event:
                case ContentDelta():
                    if event.text:
                        yield from self._begin("text", {"type": "text", "text": ""})
                        yield self._delta({"type": "text_delta", "text": event.text})
                case ReasoningDelta():
                    if event.text:
                        yield from self._begin("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                        yield self._delta({"type": "thinking_delta", "thinking": event.text})
                case CallBegan():
                    yield from self._end()
                    block = {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
                    yield from self._begin("tool_use", block)
                case CallDelta():
                    yield self._delta({"type": "input_json_delta", "partial_json": event.arguments})
                case ChoiceEnded():
                    yield from self._end()
                    self.ended = event

    def _begin(self, kind: str, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if self._open == kind:
            return
        yield from self._end()
        self._index += 1
        self._open = kind
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _end(self) -> Iterator[dict[str, Any]]:
        if self._open is not None:
            self._open = None
            yield {"type": "content_block_stop", "index": self._index}


_TEXT_OF = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


def joined(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content of a complete answer."""
    blocks: list[dict[str, Any]] = []
    texts: list[list[str]] = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
            texts.append([])
        elif event["type"] == "content_block_delta":
            texts[event["index"]].append(event["delta"][_TEXT_OF[event["delta"]["type"]]])
    for block, parts in zip(blocks, texts, strict=True):
        text = "".join(parts)
        if block["type"] == "tool_use":
            block["input"] = _input(text)
        else:
            block[block["type"]] = text
    return blocks


def _input(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        value = None
    # Anthropic's own convention for what a model left unfinished.
    return value if isinstance(value, dict) else {"INVALID_JSON": text}


def usage(counted: ChatUsage) -> dict[str, int]:
    return {
        "input_tokens": counted.prompt_tokens - counted.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counted.cached_tokens,
        "output_tokens": counted.completion_tokens,
    }
