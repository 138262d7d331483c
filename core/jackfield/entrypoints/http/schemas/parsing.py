"""Requests and answers of the parsers' routes, in SGLang's shape."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from jackfield.entrypoints.http.schemas.common import Answer, Native, Text


class ParseFunctionCallBody(Native):
    text: Text = Field(description="What a model wrote, without its reasoning.")
    tools: Any = Field(description="The functions that may be called, as in a chat request.")
    tool_call_parser: Text | None = Field(
        None, description="The parser that the server runs with, which `/model_info` tells; another is refused."
    )


class ParsedCall(Answer):
    """tool_index: the call's number in the text; parameters: JSON text, as the model wrote it."""

    tool_index: int
    name: str
    parameters: str


class ParseFunctionCallAnswer(Answer):
    normal_text: str
    calls: list[ParsedCall]


class SeparateReasoningBody(Native):
    text: Text = Field(description="What a model wrote.")
    reasoning_parser: Text | None = Field(
        None, description="The parser that the server runs with, which `/model_info` tells; another is refused."
    )
    opened: bool | None = Field(
        None,
        strict=True,
        description="Whether the prompt had left the reasoning open, so that the text begins inside it. Not given: only for a "
        "model that always reasons.",
    )


class SeparateReasoningAnswer(Answer):
    reasoning_text: str
    text: str
