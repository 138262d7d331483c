"""LangChain's chat model for OpenAI and LiteLLM, unchanged. They are large (the extra `clients`); where they are missing, these
tests are skipped."""

from __future__ import annotations

import os
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from tests.e2e.clients.conftest import CITY, KEY, SAID, Served

# Warnings of theirs about their own dependencies are not ours to end a test by.
pytestmark = pytest.mark.filterwarnings("ignore")

HELLO: Any = [{"role": "user", "content": "How is the weather?"}]
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": PARAMETERS}}
]


class Mood(BaseModel):
    """How one feels."""

    mood: Literal["good", "bad"]


@pytest.fixture
def langchain() -> Any:
    return pytest.importorskip("langchain_openai")


@pytest.fixture(scope="module")
def litellm() -> Any:
    # Else its import asks the network for a table of prices, three times.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    return pytest.importorskip("litellm")


def chat_model(langchain: Any, served: Served, **more: Any) -> Any:
    return langchain.ChatOpenAI(base_url=served.v1, api_key=KEY, model=served.model, max_retries=0, **more)


@pytest.mark.client("langchain-openai", "invoke")
def test_invoke(langchain: Any, scripted: Served) -> None:
    answer = chat_model(langchain, scripted).invoke("How is the weather?")
    assert SAID in answer.content
    assert answer.usage_metadata["total_tokens"] > 10


@pytest.mark.client("langchain-openai", "stream")
def test_stream(langchain: Any, scripted: Served) -> None:
    parts = list(chat_model(langchain, scripted, stream_usage=True).stream("How is the weather?"))
    assert SAID in "".join(part.content for part in parts)
    assert [part.usage_metadata["output_tokens"] > 10 for part in parts if part.usage_metadata] == [True]


@pytest.mark.client("langchain-openai", "bind_tools")
def test_bind_tools(langchain: Any, scripted: Served) -> None:
    model = chat_model(langchain, scripted).bind_tools(TOOLS)
    (call,) = model.invoke("How is the weather?").tool_calls
    assert (call["name"], call["args"]) == ("weather", CITY)
    streamed = None
    for part in model.stream("How is the weather?"):
        streamed = part if streamed is None else streamed + part
    assert streamed is not None
    assert [(call["name"], call["args"]) for call in streamed.tool_calls] == [("weather", CITY)]


@pytest.mark.client("langchain-openai", "with_structured_output")
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured(langchain: Any, constrained: Served, method: str) -> None:
    model = chat_model(langchain, constrained, temperature=0, max_tokens=60)
    assert isinstance(model.with_structured_output(Mood, method=method).invoke("How are you?"), Mood)


@pytest.mark.client("langchain-openai", "responses")
def test_langchain_responses(langchain: Any, scripted: Served) -> None:
    answer = chat_model(langchain, scripted, use_responses_api=True).invoke("How is the weather?")
    assert SAID in answer.text


@pytest.mark.client("langchain-openai", "embeddings (check_embedding_ctx_length=False)")
def test_langchain_embeddings(langchain: Any, embedder: Served) -> None:
    # With the check the client sends ids of OpenAI's own tokenizer, which no other model understands.
    model = langchain.OpenAIEmbeddings(
        base_url=embedder.v1, api_key=KEY, model="embedder", check_embedding_ctx_length=False, max_retries=0
    )
    assert [len(vector) > 1 for vector in model.embed_documents(["the sea", "two birds"])] == [True, True]


PREFIXES = ["openai", "hosted_vllm", "anthropic"]


def where(prefix: str, served: Served) -> dict[str, Any]:
    base = served.url if prefix == "anthropic" else served.v1
    return {"model": f"{prefix}/{served.model}", "api_base": base, "api_key": KEY, "max_retries": 0}


@pytest.mark.client("litellm", "completion")
@pytest.mark.parametrize("prefix", PREFIXES)
def test_completion(litellm: Any, scripted: Served, prefix: str) -> None:
    answer = litellm.completion(messages=HELLO, max_tokens=200, **where(prefix, scripted))
    assert SAID in answer.choices[0].message.content
    assert answer.usage.total_tokens > 10


@pytest.mark.client("litellm", "completion, streamed")
@pytest.mark.parametrize("prefix", PREFIXES)
def test_completion_stream(litellm: Any, scripted: Served, prefix: str) -> None:
    parts = litellm.completion(messages=HELLO, max_tokens=200, stream=True, **where(prefix, scripted))
    assert SAID in "".join(part.choices[0].delta.content or "" for part in parts)


@pytest.mark.client("litellm", "tools")
@pytest.mark.parametrize("prefix", PREFIXES)
def test_litellm_tools(litellm: Any, scripted: Served, prefix: str) -> None:
    answer = litellm.completion(messages=HELLO, max_tokens=200, tools=TOOLS, **where(prefix, scripted))
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "weather"
    assert CITY["city"] in call.function.arguments


@pytest.mark.client("litellm", "structured output")
def test_litellm_format(litellm: Any, constrained: Served) -> None:
    answer = litellm.completion(
        messages=HELLO, max_tokens=60, temperature=0, response_format=Mood, **where("hosted_vllm", constrained)
    )
    assert Mood.model_validate_json(answer.choices[0].message.content)


@pytest.mark.client("litellm", "embedding")
@pytest.mark.parametrize("prefix", ["openai", "hosted_vllm"])
def test_litellm_embedding(litellm: Any, embedder: Served, prefix: str) -> None:
    answer = litellm.embedding(input=["the sea", "two birds"], **where(prefix, embedder))
    assert [len(one["embedding"]) > 1 for one in answer.data] == [True, True]


@pytest.mark.client("litellm", "errors by class")
def test_litellm_errors(litellm: Any, scripted: Served) -> None:
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(messages=HELLO, temperature=-1, **where("openai", scripted))
    with pytest.raises(litellm.AuthenticationError):
        litellm.completion(messages=HELLO, **{**where("openai", scripted), "api_key": "wrong"})
