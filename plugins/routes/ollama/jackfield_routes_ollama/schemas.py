"""Requests of Ollama's API. What a field means to the model is `chat_request`'s to know."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, Strict

Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]


class Loose(BaseModel):
    """Clients send fields that other versions know: an unknown one is ignored."""

    model_config = ConfigDict(extra="ignore")


class Options(Loose):
    """Options of the machine (num_ctx, num_gpu, num_thread, ...) are ignored: an operator sets those of this server."""

    num_predict: Annotated[int, Strict()] | None = Field(
        None, description="Most tokens of the answer; not given or below 0: as many as fit."
    )
    seed: Any = None
    stop: Text | list[Text] | None = None
    temperature: Any = None
    top_p: Any = None
    top_k: Any = Field(None, description="0: all tokens.")
    min_p: Any = None
    repeat_penalty: Any = Field(None, description="Over prompt and answer, whatever repeat_last_n says.")
    presence_penalty: Any = None
    frequency_penalty: Any = None
    mirostat: Any = Field(None, description="Not supported: refused unless it is 0.")
    typical_p: Any = Field(None, description="Not supported: refused unless it is 1.")
    tfs_z: Any = Field(None, description="Not supported: refused unless it is 1.")


class CalledFunction(Loose):
    name: Text
    arguments: dict[str, Any] = Field(default_factory=dict)


class MessageCall(Loose):
    function: CalledFunction


class InputMessage(Loose):
    role: Text
    content: Text | None = None
    thinking: Text | None = None
    tool_calls: list[MessageCall] | None = None
    tool_name: Text | None = Field(None, description="Of a message of the role tool: whose result it is.")
    images: list[Any] | None = Field(None, description="Refused: the served model reads text.")


class Body(Loose):
    model: Text
    stream: Flag | None = Field(None, description="Answer line by line, one JSON object each; on unless it is false.")
    format: Any = Field(None, description="`json`, or a JSON schema that the answer keeps to.")
    options: Options | None = None
    think: Any = Field(None, description="true, false, or how hard: low, medium, high. Not given: the model's default.")
    keep_alive: Any = Field(None, description="Accepted and without effect: the model stays.")


class ChatBody(Body):
    """A conversation. Without messages: answered at once, as the model is loaded."""

    messages: list[InputMessage] = Field(default_factory=list)
    tools: list[dict[str, Any]] | None = None


class GenerateBody(Body):
    """A prompt, which is one turn of the user's unless it is raw. Without one: answered at once, as the model is loaded."""

    prompt: Text = ""
    system: Text | None = None
    raw: Flag | None = Field(None, description="The prompt is not put into the model's template.")
    suffix: Text | None = Field(None, description="Refused: the served model does not fill in.")
    template: Text | None = Field(None, description="Refused: templates come from the operator.")
    context: Any = Field(None, description="Refused: send the conversation to /api/chat.")
    images: list[Any] | None = Field(None, description="Refused: the served model reads text.")


class ShowBody(Loose):
    model: Text | None = None
    name: Text | None = Field(None, description="Older clients' word for model.")
    verbose: Flag | None = None
