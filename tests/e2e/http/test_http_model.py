"""The embedded model by every route: the same tokens as the engine gives, streaming and not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jackfield import Engine
from tests.e2e.http.servers import Server, events, serving

pytestmark = pytest.mark.model

PROMPTS = ["The capital of France is", "1, 2, 3, 4,", "Once upon a time"]
MESSAGES = [{"role": "user", "content": "Name three rivers."}]
TOKENS = 10
GREEDY = {"temperature": 0, "max_new_tokens": TOKENS}
FLAGS = ("--dtype", "float32", "--max-total-tokens", "4096", "--check-invariants", "step")


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    with Engine(dtype="float32", max_total_tokens=4096) as engine:
        ids = engine.apply_chat_template(MESSAGES)
        return {
            "prompts": engine.generate(PROMPTS, GREEDY),
            "chat": engine.generate(input_ids=ids, sampling_params=GREEDY),
            "chat_ids": ids,
        }


@pytest.fixture(scope="module", params=["processes", "inline"])
def model_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with serving(*FLAGS, "--topology", request.param) as server:
        yield server


def test_generate(model_server: Server, expected: dict[str, Any]) -> None:
    wanted = [(answer["text"], answer["output_ids"]) for answer in expected["prompts"]]
    batch = model_server.generate(text=PROMPTS, sampling_params=GREEDY)
    assert [(answer["text"], answer["output_ids"]) for answer in batch] == wanted
    for prompt, (text, ids) in zip(PROMPTS, wanted, strict=True):
        stream = events(model_server.post("/generate", {"text": prompt, "sampling_params": GREEDY, "stream": True}))
        assert (stream[-1]["text"], stream[-1]["output_ids"]) == (text, ids)


def test_completions(model_server: Server, expected: dict[str, Any]) -> None:
    wanted = [answer["text"] for answer in expected["prompts"]]
    body = {"prompt": PROMPTS, "temperature": 0, "max_tokens": TOKENS}
    whole = model_server.post("/v1/completions", body).json()
    assert [choice["text"] for choice in whole["choices"]] == wanted
    told = [""] * len(PROMPTS)
    for chunk in events(model_server.post("/v1/completions", {**body, "stream": True})):
        for choice in chunk["choices"]:
            told[choice["index"]] += choice["text"]
    assert told == wanted


def test_chat(model_server: Server, expected: dict[str, Any]) -> None:
    body = {"messages": MESSAGES, "temperature": 0, "max_tokens": TOKENS}
    whole = model_server.post("/v1/chat/completions", body).json()
    assert whole["choices"][0]["message"]["content"] == expected["chat"]["text"]
    assert whole["usage"]["prompt_tokens"] == len(expected["chat_ids"])
    chunks = events(model_server.post("/v1/chat/completions", {**body, "stream": True}))
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == expected["chat"]["text"]
