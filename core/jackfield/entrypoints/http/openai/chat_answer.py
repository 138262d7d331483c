"""Choices and events of a chat in OpenAI's shape. Knows no request and no route.

Policies
  content      null if the choice has calls and no text, else a text
  keys         `reasoning_content` and `tool_calls` are there only if the choice has any
  logprobs     in a stream, entries go with the next delta of their choice, whatever it is; those without one have a chunk with
               an empty content
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from jackfield.entrypoints.http.exchange import GOES_ON
from jackfield.hookspecs.chat import (
    CallBegan,
    CallDelta,
    ChatChoice,
    ChatEvent,
    ChatUsage,
    ChoiceEnded,
    ContentDelta,
    ReasoningDelta,
    TokenEntry,
    TokensScored,
)


def usage_object(used: ChatUsage) -> dict[str, Any]:
    return {
        "prompt_tokens": used.prompt_tokens,
        "completion_tokens": used.completion_tokens,
        "total_tokens": used.prompt_tokens + used.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
    }


def choice_object(choice: ChatChoice) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": choice.content, "refusal": None}
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if choice.tool_calls:
        message["content"] = choice.content or None
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in choice.tool_calls
        ]
    return {
        "index": choice.index,
        "message": message,
        "logprobs": None if choice.logprobs is None else logprobs_object(choice.logprobs),
        "finish_reason": choice.reason,
        "matched_stop": choice.matched,
    }


def logprobs_object(entries: Sequence[TokenEntry]) -> dict[str, Any]:
    content = [{**_named(entry), "top_logprobs": [_named(one) for one in entry.top]} for entry in entries]
    return {"content": content, "refusal": None}


def _named(entry: TokenEntry) -> dict[str, Any]:
    return {"token": entry.token, "logprob": entry.logprob, "bytes": list(entry.data)}


def first_choice(index: int) -> dict[str, Any]:
    """Of a stream's first chunk."""
    return _chunk(index, {"role": "assistant", "content": ""})


def chunk_choices(events: Iterable[ChatEvent]) -> Iterator[dict[str, Any]]:
    """The choice of each chunk that the events make."""
    entries: dict[int, tuple[TokenEntry, ...]] = {}
    for event in events:
        index = event.index
        if isinstance(event, TokensScored):
            entries[index] = entries.get(index, ()) + event.entries
            continue
        scored = entries.pop(index, None)
        if isinstance(event, ChoiceEnded):
            if scored:
                yield _chunk(index, {"content": ""}, logprobs_object(scored))
            yield {**_chunk(index, {}), "finish_reason": event.reason, "matched_stop": event.matched}
            continue
        yield _chunk(index, _delta(event), logprobs_object(scored) if scored else None)
    for index, scored in entries.items():
        yield _chunk(index, {"content": ""}, logprobs_object(scored))


def _delta(event: ContentDelta | ReasoningDelta | CallBegan | CallDelta) -> dict[str, Any]:
    match event:
        case ContentDelta():
            return {"content": event.text}
        case ReasoningDelta():
            return {"reasoning_content": event.text}
        case CallBegan():
            function = {"name": event.name, "arguments": ""}
            return {"tool_calls": [{"index": event.call, "id": event.id, "type": "function", "function": function}]}
        case CallDelta():
            return {"tool_calls": [{"index": event.call, "function": {"arguments": event.arguments}}]}


def _chunk(index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, **GOES_ON}
