"""Requests and answers of OpenAI's responses. Input items are checked by `response_input`, the rest where chats are."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from jackfield.entrypoints.http.schemas.common import Answer, Count, Flag, OpenAI, Text

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class TextOptions(OpenAI):
    format: Any = Field(
        None, description="text, json_object, or json_schema with name, schema and strict beside the type."
    )


class ReasoningOptions(OpenAI):
    effort: Any = Field(None, description="As `reasoning_effort` of chats.")


class ResponseBody(OpenAI):
    """Other fields are ignored."""

    model: Text | None = Field(None, description="The served model's id; not given: the served model.")
    input: Any = Field(description="A text, or items: messages, function_call, function_call_output, reasoning.")
    instructions: Text | None = Field(None, description="A system message before the input; it is not carried over.")
    previous_response_id: Text | None = Field(None, description="Go on with a stored response's conversation.")
    store: Flag | None = Field(None, description="Keep the response; not given: where the server has a store.")
    background: Flag | None = Field(None, description="Answer at once, and go on; needs the store.")
    stream: Flag | None = Field(None, description="Answer with server-sent events.")
    max_output_tokens: Count | None = Field(None, description="Most tokens to generate; not given: as many as fit.")
    temperature: Any = Field(None, description="0 is greedy.")
    top_p: Any = Field(None, description="Nucleus sampling, above 0 and at most 1.")
    top_logprobs: Any = Field(None, description="How many of the likeliest tokens go with each, 0 to 20.")
    include: list[Text] | None = Field(
        None,
        description="message.output_text.logprobs gives the tokens' log-probabilities; other names ask for nothing here.",
    )
    tools: Any = Field(None, description="Functions that the model may call.")
    tool_choice: Any = Field(None, description="auto, none, required, a function by name, or allowed_tools.")
    parallel_tool_calls: Flag | None = Field(None, description="false: at most one call in an answer.")
    text: TextOptions | None = Field(None, description="The format of the answer's text.")
    reasoning: ReasoningOptions | None = Field(None, description="How much the model reasons.")
    metadata: dict[Text, Text] | None = Field(None, description="Comes back with the response.")
    truncation: Literal["disabled"] | None = Field(None, description="An input that does not fit is refused.")
    prompt: None = Field(None, description="Refused: there are no stored prompts.")
    conversation: None = Field(None, description="Refused: use `previous_response_id`.")
    seed: Any = Field(None, description="Extension: seed of the draws.")
    stop: Any = Field(None, description="Extension: a text, or several, at which the answer ends.")
    chat_template_kwargs: dict[Text, Any] | None = Field(
        None, description="Extension: variables of the chat template; --chat-template-kwargs names those allowed."
    )
    cache_salt: Any = Field(None, description="Extension: a secret text; see chats.")
    priority: Any = Field(None, description="Extension, for policies that look at it.")
    tenant: Any = Field(None, description="Extension, for policies that look at it.")
    deadline_s: Any = Field(None, description="Extension, for policies that look at it.")


class CachedTokens(Answer):
    cached_tokens: int


class ReasoningTokens(Answer):
    reasoning_tokens: int


class ResponseUsage(Answer):
    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class IncompleteDetails(Answer):
    reason: Literal["max_output_tokens"]


class ResponseFailure(Answer):
    code: str
    message: str


class Response(Answer):
    """output: items of type reasoning, message and function_call, in the order in which the model wrote them."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Status
    background: bool
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[dict[str, Any]]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: dict[str, Any]
    store: bool
    temperature: float | None
    text: dict[str, Any]
    tool_choice: Any
    tools: list[dict[str, Any]]
    top_p: float | None
    truncation: Literal["disabled"]
    usage: ResponseUsage | None


class ResponseEvent(Answer):
    """Further fields depend on the type; they are OpenAI's."""

    model_config = ConfigDict(extra="allow")

    type: str
    sequence_number: int = Field(description="From 0, without a gap.")


class DeletedResponse(Answer):
    id: str
    object: Literal["response"]
    deleted: Literal[True]
