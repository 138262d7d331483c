"""Requests of the Messages API. What a field means to the model is `chat_request`'s to know."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Field(ge=1, le=2**31 - 1)]


class Loose(BaseModel):
    """Clients send fields that other servers know: an unknown one is ignored."""

    model_config = ConfigDict(extra="ignore")


class TextBlock(Loose):
    type: Literal["text"]
    text: Text


class ImageBlock(Loose):
    """Refused: the served model reads text."""

    type: Literal["image"]
    source: Any = None


class DocumentBlock(Loose):
    """Refused: the served model reads text."""

    type: Literal["document"]
    source: Any = None


class ToolUseBlock(Loose):
    type: Literal["tool_use"]
    id: Text
    name: Text
    input: dict[str, Any]


class ToolResultBlock(Loose):
    type: Literal["tool_result"]
    tool_use_id: Text
    content: Text | list[Annotated[TextBlock | ImageBlock | DocumentBlock, Field(discriminator="type")]] | None = None
    is_error: Flag | None = Field(None, description="The model then reads `Error: ` in front of the content.")


class ThinkingBlock(Loose):
    type: Literal["thinking"]
    thinking: Text
    signature: Any = Field(None, description="Not looked at.")


class RedactedThinkingBlock(Loose):
    """Skipped: only whoever wrote it can read it."""

    type: Literal["redacted_thinking"]
    data: Any = None


Block = Annotated[
    TextBlock | ImageBlock | DocumentBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedThinkingBlock,
    Field(discriminator="type"),
]


class InputMessage(Loose):
    role: Literal["user", "assistant"]
    content: Text | Annotated[list[Block], Field(min_length=1)]


class Tool(Loose):
    """A tool of the client's own; tools that Anthropic's servers run are refused by their type."""

    name: Text
    input_schema: dict[str, Any]
    description: Text | None = None
    type: Literal["custom"] | None = None
    strict: Flag | None = None


class ToolChoice(Loose):
    type: Literal["auto", "any", "tool", "none"]
    name: Text | None = Field(None, description="With type tool.")
    disable_parallel_tool_use: Flag | None = None


class Thinking(Loose):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Count | None = Field(
        None, description="Less than max_tokens, which thinking counts against. The model is not stopped at it."
    )


class OutputFormat(Loose):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Loose):
    format: OutputFormat | None = None
    effort: Text | None = Field(None, description="For chat templates that read one.")


class CountBody(Loose):
    """A conversation, to be counted."""

    model: Text
    messages: list[InputMessage] = Field(min_length=1)
    system: Text | list[TextBlock] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = Field(None, description="Not given: off, where the model's template can switch it.")
    output_config: OutputConfig | None = None


class MessagesBody(CountBody):
    """A conversation, to be answered. If its last message is the assistant's, the answer goes on with it."""

    max_tokens: Count = Field(
        description="Most tokens of the answer, thinking included. At or above the model's context length: as many as fit."
    )
    stream: Flag | None = Field(None, description="Answer with server-sent events.")
    stop_sequences: list[Text] | None = None
    temperature: Any = None
    top_p: Any = None
    top_k: Any = None
    metadata: Any = Field(None, description="Accepted and without effect.")
