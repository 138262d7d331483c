"""The official `openai` client, unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel

from tests.e2e.clients.conftest import CITY, KEY, SAID, THOUGHT, Served
from tests.e2e.http.servers import DEADLINE

HELLO: Any = [{"role": "user", "content": "How is the weather?"}]
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]


class Mood(BaseModel):
    mood: Literal["good", "bad"]


def client_of(served: Served, key: str = KEY) -> openai.OpenAI:
    return openai.OpenAI(base_url=served.v1, api_key=key, max_retries=0, timeout=DEADLINE)


@pytest.fixture
def client(scripted: Served) -> Iterator[openai.OpenAI]:
    with client_of(scripted) as made:
        yield made


@pytest.mark.client("openai", "chat")
def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="scripted", messages=HELLO, temperature=0)
    message = answer.choices[0].message
    assert SAID in (message.content or "")
    assert message.model_extra is not None
    assert message.model_extra["reasoning_content"].strip() == THOUGHT
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@pytest.mark.client("openai", "chat, streamed")
def test_chat_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="scripted", messages=HELLO, stream_options={"include_usage": True}
    ) as stream:
        for _ in stream:
            pass
        last = stream.get_final_completion()
    assert SAID in (last.choices[0].message.content or "")
    assert last.usage is not None


@pytest.mark.client("openai", "tools")
def test_tools(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="scripted", messages=HELLO, tools=TOOLS)
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, answer.choices[0].finish_reason) == ("weather", "tool_calls")
    assert CITY["city"] in call.function.arguments
    messages = [*HELLO, answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    assert client.chat.completions.create(model="scripted", messages=messages, tools=TOOLS).choices


@pytest.mark.client("openai", "tools, streamed")
def test_tools_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="scripted", messages=HELLO, tools=TOOLS) as stream:
        for _ in stream:
            pass
        (call,) = stream.get_final_completion().choices[0].message.tool_calls or []
    assert (call.function.name, CITY["city"] in call.function.arguments) == ("weather", True)


@pytest.mark.client("openai", "structured output")
def test_parse(constrained: Served) -> None:
    with client_of(constrained) as client:
        answer = client.chat.completions.parse(
            model="real", messages=HELLO, response_format=Mood, temperature=0, max_tokens=40
        )
    assert isinstance(answer.choices[0].message.parsed, Mood)


@pytest.mark.client("openai", "responses")
def test_responses(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="scripted", input="How is the weather?")
    assert SAID in answer.output_text
    tool: Any = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False}
    with client.responses.stream(model="scripted", input="How is the weather?", tools=[tool]) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]


@pytest.mark.client("openai", "responses, structured output")
def test_responses_parse(constrained: Served) -> None:
    with client_of(constrained) as client:
        answer = client.responses.parse(
            model="real", input="How are you?", text_format=Mood, temperature=0, max_output_tokens=40
        )
    assert isinstance(answer.output_parsed, Mood)


@pytest.mark.client("openai", "completions")
def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="scripted", prompt=["a", "b"], max_tokens=100)
    assert [SAID in choice.text for choice in answer.choices] == [True, True]
    stream = client.completions.create(model="scripted", prompt="a", max_tokens=100, stream=True)
    assert SAID in "".join(chunk.choices[0].text for chunk in stream)


@pytest.mark.client("openai", "embeddings")
def test_embeddings(embedder: Served) -> None:
    with client_of(embedder) as client:
        answer = client.embeddings.create(model="embedder", input=["the sea", "two birds"])
    assert [len(one.embedding) > 1 for one in answer.data] == [True, True]


@pytest.mark.client("openai", "models")
def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["scripted"]
    assert client.models.retrieve("scripted").id == "scripted"


@pytest.mark.client("openai", "errors by class")
def test_errors(client: openai.OpenAI, scripted: Served) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="scripted", messages=HELLO, temperature=-1)
    assert refused.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=HELLO, stream=True)
    with client_of(scripted, "wrong") as stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()
