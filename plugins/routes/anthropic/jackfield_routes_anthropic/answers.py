"""Answers of the Messages API, as `/openapi.json` and the tests know them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """All fields stand here."""

    model_config = ConfigDict(extra="forbid")


class Usage(Strict):
    input_tokens: int = Field(description="Of the prompt, without those that the prefix cache had.")
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class Text(Strict):
    type: Literal["text"]
    text: str
    citations: None = None


class Thinking(Strict):
    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUse(Strict):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any] = Field(
        description="Of a call that was cut off: {INVALID_JSON: what there is of its arguments}."
    )


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class Message(Strict):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Text | Thinking | ToolUse]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: Usage


class TokenCount(Strict):
    input_tokens: int


class ErrorFacts(Strict):
    type: str
    message: str


class Error(Strict):
    type: Literal["error"]
    error: ErrorFacts
    request_id: str


class StreamEvent(BaseModel):
    """One event; its name is its type: message_start, content_block_start, content_block_delta, content_block_stop,
    message_delta, message_stop, ping, or error, after which nothing comes."""

    model_config = ConfigDict(extra="allow")

    type: Literal[
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    ]
