"""Requests and answers of the tokenizer's routes: SGLang's shape, with vLLM's fields for chats."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from jackfield.entrypoints.http.schemas.common import Answer, Flag, OpenAI, Text
from jackfield.entrypoints.http.schemas.openai_chat import Message


class TokenizeBody(OpenAI):
    """Exactly one of `prompt` and `messages`."""

    model: Text | None = Field(None, description="The served model's id; not given: the served model.")
    prompt: Any = Field(None, description="A text, or a list of texts. The text of a special token is that token here.")
    messages: list[Message] | None = Field(
        None, description="A conversation, through the model's chat template as in `/v1/chat/completions`."
    )
    tools: Any = Field(None, description="With `messages`: the functions that the chat would offer.")
    add_special_tokens: Flag | None = Field(
        None,
        description="Of a prompt: put the tokens round it that the model wants, as `/v1/completions` does; not given: true. "
        "A chat template writes its own, so with `messages` only false is taken.",
    )
    add_generation_prompt: Flag | None = Field(
        None, description="With `messages`: end with the header of an assistant's turn; not given: true."
    )
    continue_final_message: Flag | None = Field(
        None, description="With `messages`: the last one stays open, and no header follows."
    )
    chat_template_kwargs: dict[Text, Any] | None = Field(
        None, description="With `messages`: variables of the chat template; --chat-template-kwargs names those allowed."
    )
    return_token_strs: Flag | None = Field(None, description="Also spell each token as the vocabulary does.")


class TokenizeAnswer(Answer):
    """Of a list of texts, each field but `max_model_len` is a list with one entry a text."""

    tokens: list[int] | list[list[int]]
    count: int | list[int]
    max_model_len: int = Field(description="Most tokens of a prompt: the context length.")
    token_strs: list[str | None] | list[list[str | None]] | None = Field(None, description="With `return_token_strs`.")


class DetokenizeBody(OpenAI):
    model: Text | None = Field(None, description="The served model's id; not given: the served model.")
    tokens: Any = Field(description="Token ids, or a list of such lists.")
    skip_special_tokens: Flag | None = Field(None, description="Leave special tokens out of the text; not given: true.")


class DetokenizeAnswer(Answer):
    text: str | list[str] = Field(description="A list for a list of lists.")
