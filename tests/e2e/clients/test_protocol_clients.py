"""The official clients of Anthropic and Ollama, unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import ollama
import pytest

from tests.e2e.clients.conftest import CITY, KEY, SAID, THOUGHT, Served
from tests.e2e.http.servers import DEADLINE

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CLAUDES: Any = [{"name": "weather", "description": "The weather.", "input_schema": SCHEMA}]
OLLAMAS = [{"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": SCHEMA}}]
HELLO: Any = [{"role": "user", "content": "How is the weather?"}]
ASKED: Any = {"model": "scripted", "max_tokens": 200, "messages": HELLO}
MOOD = {"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}}, "required": ["mood"]}


@pytest.fixture
def claude(scripted: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=scripted.url, api_key=KEY, max_retries=0, timeout=DEADLINE) as client:
        yield client


@pytest.fixture
def llama(scripted: Served) -> Iterator[ollama.Client]:
    with ollama_of(scripted) as client:
        yield client


def ollama_of(served: Served) -> ollama.Client:
    return ollama.Client(host=served.url, headers={"authorization": f"Bearer {KEY}"}, timeout=DEADLINE, trust_env=False)


@pytest.mark.client("anthropic", "messages")
def test_messages(claude: anthropic.Anthropic) -> None:
    message = claude.messages.create(**ASKED, system="Be brief.")
    assert SAID in "".join(block.text for block in message.content if block.type == "text")
    assert message.stop_reason == "end_turn"


@pytest.mark.client("anthropic", "messages, streamed")
def test_messages_stream(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(**ASKED) as stream:
        assert SAID in "".join(stream.text_stream)
        assert stream.get_final_message().usage.output_tokens > 10


@pytest.mark.client("anthropic", "tools")
def test_claudes_tools(claude: anthropic.Anthropic) -> None:
    message = claude.messages.create(**ASKED, tools=CLAUDES)
    (call,) = [block for block in message.content if block.type == "tool_use"]
    assert (call.name, call.input, message.stop_reason) == ("weather", CITY, "tool_use")
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]}
    history: Any = [*HELLO, {"role": "assistant", "content": message.content}, result]
    assert claude.messages.create(**{**ASKED, "messages": history}, tools=CLAUDES).content


@pytest.mark.client("anthropic", "thinking")
def test_thinking(claude: anthropic.Anthropic) -> None:
    message = claude.messages.create(
        **{**ASKED, "max_tokens": 2000}, thinking={"type": "enabled", "budget_tokens": 1024}
    )
    assert [block.thinking.strip() for block in message.content if block.type == "thinking"] == [THOUGHT]


@pytest.mark.client("anthropic", "count_tokens")
def test_count_tokens(claude: anthropic.Anthropic) -> None:
    counted = claude.messages.count_tokens(model="scripted", messages=HELLO).input_tokens
    used = claude.messages.create(**ASKED).usage
    assert counted == used.input_tokens + (used.cache_read_input_tokens or 0)


@pytest.mark.client("anthropic", "errors by class")
def test_claudes_errors(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(**{**ASKED, "model": "other"})
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.create(**{**ASKED, "max_tokens": 0})
    with pytest.raises(anthropic.AuthenticationError):
        claude.with_options(api_key="wrong").messages.create(**ASKED)


@pytest.mark.client("ollama", "chat")
def test_ollama_chat(llama: ollama.Client) -> None:
    answer = llama.chat("scripted", messages=HELLO, options={"num_predict": 200})
    assert SAID in (answer.message.content or "")


@pytest.mark.client("ollama", "chat, streamed")
def test_ollama_stream(llama: ollama.Client) -> None:
    parts = list(llama.chat("scripted", messages=HELLO, stream=True))
    assert SAID in "".join(part.message.content or "" for part in parts)
    assert [part.done for part in parts[-2:]] == [False, True]


@pytest.mark.client("ollama", "tools")
def test_ollama_tools(llama: ollama.Client) -> None:
    (call,) = llama.chat("scripted", messages=HELLO, tools=OLLAMAS).message.tool_calls or []
    assert (call.function.name, dict(call.function.arguments)) == ("weather", CITY)


@pytest.mark.client("ollama", "structured output")
def test_ollama_format(constrained: Served) -> None:
    with ollama_of(constrained) as client:
        answer = client.chat("real", messages=HELLO, format=MOOD, options={"temperature": 0, "num_predict": 40})
    assert '"mood"' in (answer.message.content or "")


@pytest.mark.client("ollama", "generate")
def test_ollama_generate(llama: ollama.Client) -> None:
    assert SAID in llama.generate("scripted", prompt="How is the weather?").response
    assert SAID in "".join(part.response for part in llama.generate("scripted", prompt="How?", stream=True))


@pytest.mark.client("ollama", "list and show")
def test_ollama_tags(llama: ollama.Client) -> None:
    assert [model.model for model in llama.list().models] == ["scripted"]
    assert llama.show("scripted").details is not None


@pytest.mark.client("ollama", "errors by class")
def test_ollama_errors(llama: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError) as missing:
        llama.chat("other", messages=HELLO)
    assert missing.value.status_code == 404
