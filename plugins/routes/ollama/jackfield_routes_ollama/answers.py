"""Answers of Ollama's API, as `/openapi.json` and the tests know them. Durations are nanoseconds."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    """All fields stand here."""

    model_config = ConfigDict(extra="forbid")


class Error(Answer):
    error: str


class Function(Answer):
    name: str
    arguments: dict[str, Any]


class ToolCall(Answer):
    id: str
    function: Function


class Message(Answer):
    role: str
    content: str
    thinking: str | None = None
    tool_calls: list[ToolCall] | None = None


class Ending(Answer):
    """Those below `done` stand in the last piece only."""

    model: str
    created_at: str
    done: bool
    done_reason: str | None = None
    total_duration: int | None = None
    load_duration: int | None = None
    prompt_eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None


class ChatAnswer(Ending):
    message: Message


class GenerateAnswer(Ending):
    response: str
    thinking: str | None = None


class Details(Answer):
    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class Listed(Answer):
    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: Details


class Tags(Answer):
    models: list[Listed]


class Running(Answer):
    name: str
    model: str
    size: int
    digest: str
    details: Details
    expires_at: str
    size_vram: int
    context_length: int


class Processes(Answer):
    models: list[Running]


class Version(Answer):
    version: str


class Shown(Answer):
    modelfile: str
    parameters: str
    template: str
    details: Details
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str
