"""What the protocols look like: the body of a request, and what an event of its stream says.

OpenAI's completions and chat, and SGLang's /generate. Knows no time and no connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from jackfield.entrypoints.bench.asks import Ask

SHOWN = 300
"""Characters of an error that are kept."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """An event. content: whether it has a part of the answer; tokens: how many there are so far, None if it does not say."""

    content: bool = False
    tokens: int | None = None
    finish: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    final_usage: bool = False
    error: str | None = None


class Api(Protocol):
    """path: of the route; takes_ids: whether a prompt may be token ids; ends_with_done: whether [DONE] ends a stream."""

    path: str
    takes_ids: bool

    def body(self, ask: Ask, model: str, ignore_eos: bool) -> dict[str, Any]: ...

    def said(self, event: Mapping[str, Any]) -> Said:
        """Raises TypeError, AttributeError, KeyError or ValueError for what is no event of the protocol."""
        ...


class _OpenAI:
    def _common(self, ask: Ask, model: str, ignore_eos: bool) -> dict[str, Any]:
        return {
            "model": model,
            "max_tokens": ask.new_tokens,
            "temperature": 0,
            "stream": True,
            # The second is an extension of several servers; others let it pass.
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        } | ({"ignore_eos": True} if ignore_eos else {})

    def said(self, event: Mapping[str, Any]) -> Said:
        if event.get("error") is not None:
            return Said(error=error_text(event["error"]))
        choices = event.get("choices") or []
        usage = event.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        return Said(
            content=any(self._has_content(choice) for choice in choices),
            tokens=_count(usage, "completion_tokens"),
            finish=next((choice["finish_reason"] for choice in choices if choice.get("finish_reason")), None),
            prompt_tokens=_count(usage, "prompt_tokens"),
            cached_tokens=_count(details, "cached_tokens"),
            final_usage=bool(usage) and not choices,
        )

    def _has_content(self, choice: Mapping[str, Any]) -> bool:
        raise NotImplementedError


class Completions(_OpenAI):
    path, takes_ids = "/v1/completions", True

    def body(self, ask: Ask, model: str, ignore_eos: bool) -> dict[str, Any]:
        return {**self._common(ask, model, ignore_eos), "prompt": ask.prompt}

    def _has_content(self, choice: Mapping[str, Any]) -> bool:
        return bool(choice.get("text"))


class Chat(_OpenAI):
    path, takes_ids = "/v1/chat/completions", False

    def body(self, ask: Ask, model: str, ignore_eos: bool) -> dict[str, Any]:
        messages = [{"role": "user", "content": ask.prompt}] if isinstance(ask.prompt, str) else ask.prompt
        return {**self._common(ask, model, ignore_eos), "messages": messages}

    def _has_content(self, choice: Mapping[str, Any]) -> bool:
        delta = choice.get("delta") or {}
        return any(delta.get(part) for part in ("content", "reasoning_content", "reasoning", "tool_calls"))


class Generate:
    """SGLang's: answers are cumulative, and each says how many tokens it has."""

    path, takes_ids = "/generate", True

    def body(self, ask: Ask, model: str, ignore_eos: bool) -> dict[str, Any]:
        sampling = {"max_new_tokens": ask.new_tokens, "temperature": 0} | ({"ignore_eos": True} if ignore_eos else {})
        name = "text" if isinstance(ask.prompt, str) else "input_ids"
        return {name: ask.prompt, "sampling_params": sampling, "stream": True}

    def said(self, event: Mapping[str, Any]) -> Said:
        if event.get("error") is not None:
            return Said(error=error_text(event["error"]))
        meta = event.get("meta_info") or {}
        finish = meta.get("finish_reason")
        if isinstance(finish, Mapping) and finish.get("type") == "abort":
            return Said(error=error_text(finish))
        return Said(
            content=bool(event.get("text")),
            tokens=_count(meta, "completion_tokens"),
            finish=finish.get("type") if isinstance(finish, Mapping) else finish,
            prompt_tokens=_count(meta, "prompt_tokens"),
            cached_tokens=_count(meta, "cached_tokens"),
        )


APIS: Mapping[str, Api] = MappingProxyType(
    {"openai-completions": Completions(), "openai-chat": Chat(), "sglang-generate": Generate()}
)


def _count(told: Mapping[str, Any], name: str) -> int | None:
    """A count that a server tells, None if it does not. Raises TypeError for what is no count."""
    value = told.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise TypeError(f"{name} is {value!r}")
    return value


def error_text(error: Any) -> str:
    """The message of an error as servers send them: an object with `message`, one nested in `error`, or a text."""
    if isinstance(error, Mapping):
        error = error.get("error") or error.get("message") or error.get("detail") or dict(error)
        if isinstance(error, Mapping) and error.get("message"):
            error = error["message"]
    return str(error)[:SHOWN]
