"""The official `openai` client, unchanged: answers, streams, and the right exception for each refusal (B20)."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.e2e.http.servers import DEADLINE, SIMULATED, Server, script, serving

KEY = "sk-test"
MODEL = "SmolLM2-135M-Instruct"
TEXT = "One, two, three."


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    with serving(*SIMULATED, *script(TEXT), env={"JACKFIELD_API_KEY": KEY}, check=False) as server:
        yield server
        assert KEY not in server.log
        assert KEY not in server.line


@pytest.fixture
def client(guarded: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=KEY, max_retries=0, timeout=DEADLINE) as client:
        yield client


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}], temperature=0)
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id


def test_a_chat_stream(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "hi"}],
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, reasons, usages = "", [], []
    for chunk in stream:
        if chunk.usage is not None:
            usages.append(chunk.usage)
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasons.append(choice.finish_reason)
    assert text == TEXT
    assert [reason for reason in reasons if reason] == ["stop"]
    assert len(usages) == 1


def test_the_clients_own_stream_helper(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=[{"role": "user", "content": "hi"}]) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == TEXT


def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=["a", "b"], max_tokens=50)
    assert [choice.text for choice in answer.choices] == [TEXT, TEXT]
    stream = client.completions.create(model=MODEL, prompt="a", max_tokens=50, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == TEXT


async def test_the_asynchronous_client(guarded: Server) -> None:
    async with openai.AsyncOpenAI(base_url=f"{guarded.url}/v1", api_key=KEY, max_retries=0) as client:
        stream = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == TEXT


def test_the_right_exceptions(client: openai.OpenAI) -> None:
    hello = [{"role": "user", "content": "hi"}]
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=hello, temperature=-1)  # type: ignore[arg-type]
    assert refused.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="other", messages=hello, stream=True)  # type: ignore[arg-type]
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="--is-embedding"):
        client.embeddings.create(model=MODEL, input="x")
    with pytest.raises(openai.NotFoundError):
        client.moderations.create(input="x")
    with pytest.raises(openai.AuthenticationError) as denied:
        client.with_options(api_key="wrong").models.list()
    assert denied.value.code == "invalid_api_key"
