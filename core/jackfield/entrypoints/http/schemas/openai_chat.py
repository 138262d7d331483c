"""Requests and answers of OpenAI's chat completions. What messages, tools and formats may hold is checked where chats of all
protocols are: `managers.chat`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from jackfield.entrypoints.http.schemas.common import Answer, Count, Flag, OpenAI, Text
from jackfield.entrypoints.http.schemas.openai import CachedTokens, MatchedStop, Sampling

FinishReason = Literal["stop", "length", "tool_calls", "abort"]


class Message(OpenAI):
    """Other fields are ignored."""

    role: Literal["system", "developer", "user", "assistant", "tool"] = Field(
        description="developer is the same as system."
    )
    content: Any = Field(None, description="Text, text parts, or null for none.")
    name: Any = Field(None, description="Of a tool's message: the function's name. Of others it is ignored.")
    tool_calls: Any = Field(
        None, description="Of the assistant: the calls that it made; arguments as JSON text or as an object."
    )
    tool_call_id: Any = Field(None, description="Of a tool's message: the call that it answers.")
    reasoning_content: Any = Field(None, description="Extension, of the assistant: for templates that show it.")
    function_call: Any = Field(None, description="Refused: use `tool_calls`.")


class ChatBody(Sampling):
    messages: list[Message] = Field(
        description="The conversation. Special tokens' text in a content is text, never a token. A last message of the "
        "assistant is followed by a new turn, unless `continue_final_message` is true."
    )
    max_completion_tokens: Count | None = Field(None, description="Most tokens to generate; goes before `max_tokens`.")
    max_tokens: Count | None = Field(None, description="The older name. Neither given: as many as fit.")
    tools: Any = Field(None, description="Functions that the model may call, as OpenAI describes them.")
    tool_choice: Any = Field(
        None,
        description="auto (the default with tools), none, required, a function by name, or allowed_tools. auto needs "
        "--tool-call-parser.",
    )
    parallel_tool_calls: Flag | None = Field(None, description="false: at most one call in an answer.")
    response_format: Any = Field(None, description="text, json_object, json_schema, or (extension) structural_tag.")
    reasoning_effort: Any = Field(
        None,
        description="A word for chat templates that read one; none: no reasoning, where the template can do without.",
    )
    separate_reasoning: Flag | None = Field(
        None, description="Extension: false leaves the reasoning in the content, as the model wrote it."
    )
    stream_reasoning: Flag | None = Field(
        None, description="Extension: false sends the reasoning in one piece, once it is over."
    )
    chat_template_kwargs: dict[Text, Any] | None = Field(
        None, description="Extension: variables of the chat template; --chat-template-kwargs names those allowed."
    )
    continue_final_message: Flag | None = Field(None, description="Extension: go on with the last message's text.")
    chat_template: Any = Field(None, description="Refused: a request brings no template.")
    functions: Any = Field(None, description="Refused unless empty: use `tools`.")
    function_call: Any = Field(None, description="Refused unless it asks for nothing: use `tool_choice`.")
    top_logprobs: Any = Field(None, description="How many of the likeliest tokens go with each, 0 to 20.")

    @field_validator("chat_template")
    @classmethod
    def _no_template(cls, value: Any) -> Any:
        if value is not None:
            raise ValueError("a request may not bring a template; the server is started with --chat-template FILE")
        return value


class CompletionTokens(Answer):
    reasoning_tokens: int = Field(description="Of the completion, up to the end of the reasoning.")


class ChatUsage(Answer):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: CompletionTokens


class CalledFunction(Answer):
    name: str
    arguments: str = Field(description="JSON text; of a call that was cut off, what was produced of it.")


class ToolCall(Answer):
    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(Answer):
    role: Literal["assistant"]
    content: str | None = Field(description="null if there are calls and no text.")
    reasoning_content: str | None = Field(None, description="Extension: there if the model reasoned.")
    tool_calls: list[ToolCall] | None = Field(None, description="There if the model made calls.")
    refusal: None


class TopLogprob(Answer):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Answer):
    """One entry a token that usage counts: stop and end tokens, reasoning and calls included."""

    content: list[TokenLogprob]
    refusal: None


class ChatChoice(Answer):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    matched_stop: MatchedStop = None


class ChatCompletion(Answer):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: ChatUsage


class FunctionDelta(Answer):
    name: str | None = Field(None, description="With the call's first delta.")
    arguments: str = Field(description="More of the JSON text.")


class CallDelta(Answer):
    index: int = Field(description="The call's number in the choice.")
    id: str | None = Field(None, description="With the call's first delta.")
    type: Literal["function"] | None = Field(None, description="With the call's first delta.")
    function: FunctionDelta


class Delta(Answer):
    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallDelta] | None = None


class ChunkChoice(Answer):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None = Field(description="null until the choice's last chunk.")
    matched_stop: MatchedStop = None


class ChatChunk(Answer):
    """An event of a chat stream: first the role, then what the model writes, then one finish reason, then the usage if asked
    for."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    usage: ChatUsage | None = None
