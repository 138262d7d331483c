"""Requests in the shape of clients that are not installed here: SGLang's frontend (its RuntimeEndpoint), and load tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.clients.conftest import ADMIN, KEY, SAID, Served
from tests.e2e.http.servers import PLAIN

ENDPOINT = "SGLang RuntimeEndpoint (its requests)"
LOAD = "guidellm, aiperf (their requests)"
SAMPLING = {
    "skip_special_tokens": True,
    "max_new_tokens": 64,
    "stop": [],
    "temperature": 0.0,
    "top_p": 1.0,
    "top_k": -1,
}


@pytest.fixture
def http(scripted: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=scripted.url, headers={"Authorization": f"Bearer {KEY}"}, **PLAIN) as client:
        yield client


@pytest.mark.client(ENDPOINT, "model and server info")
@pytest.mark.parametrize("path", ["/get_model_info", "/model_info", "/get_server_info", "/server_info", "/health"])
def test_info(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert answer.status_code == 200
    if "model" in path:
        assert answer.json()["model_path"]


@pytest.mark.client(ENDPOINT, "generate")
def test_generate(http: httpx.Client) -> None:
    answer = http.post("/generate", json={"text": "How is the weather?", "sampling_params": SAMPLING}).json()
    assert SAID in answer["text"]
    assert answer["meta_info"]["completion_tokens"] > 10


@pytest.mark.client(ENDPOINT, "generate, streamed")
def test_generate_stream(http: httpx.Client) -> None:
    body = {"text": "How is the weather?", "sampling_params": SAMPLING, "stream": True}
    position, text, finish = 0, "", None
    with http.stream("POST", "/generate", json=body) as answer:
        for line in answer.iter_lines():
            if not line.startswith("data:"):
                continue
            if line == "data: [DONE]":
                break
            told = json.loads(line[5:].strip("\n"))
            text += told["text"][position:]
            position, finish = len(told["text"]), told["meta_info"]["finish_reason"]
    assert SAID in text
    assert finish["type"] in ("stop", "length")


@pytest.mark.client(ENDPOINT, "cache_prefix and select")
def test_select(http: httpx.Client) -> None:
    nothing = http.post("/generate", json={"text": "Once", "sampling_params": {"max_new_tokens": 0}}).json()
    assert nothing["meta_info"]["prompt_tokens"] > 0
    body: dict[str, Any] = {"text": ["It is sunny", "It is red"], "return_logprob": True, "logprob_start_len": 1}
    body["sampling_params"] = {"max_new_tokens": 0, "temperature": 0}
    for one in http.post("/generate", json=body).json():
        assert all(value is None or value <= 0 for value, *_ in one["meta_info"]["input_token_logprobs"])


@pytest.mark.client(ENDPOINT, "flush_cache")
def test_flush(embedder: Served) -> None:
    # By the admin key, where one is set.
    admin = {"Authorization": f"Bearer {ADMIN}"}
    assert httpx.post(f"{embedder.url}/flush_cache", headers=admin, **PLAIN).status_code == 200


@pytest.mark.client(ENDPOINT, "regex and json_schema")
def test_constrained(constrained: Served) -> None:
    with httpx.Client(base_url=constrained.url, headers={"Authorization": f"Bearer {KEY}"}, **PLAIN) as http:
        sampling = {"max_new_tokens": 20, "temperature": 0, "regex": "(yes|no)"}
        answer = http.post("/generate", json={"text": "Is it?", "sampling_params": sampling}).json()
    assert answer["text"] in ("yes", "no")


@pytest.mark.client(LOAD, "chat")
@pytest.mark.parametrize(
    "more",
    [
        {"max_tokens": 24, "max_completion_tokens": 24, "ignore_eos": True, "stop": None},
        {"max_completion_tokens": 24, "min_tokens": 24, "ignore_eos": True, "temperature": 0.0},
        {"max_tokens": 24, "ignore_eos": True, "repetition_penalty": 1.0, "seed": 0},
    ],
)
def test_load_chat(http: httpx.Client, more: dict[str, Any]) -> None:
    content = [{"type": "text", "text": "How is the weather?"}]
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {
        "model": "scripted",
        "messages": [{"role": "user", "content": content}],
        "stream": True,
        "stream_options": options,
    }
    answer = http.post("/v1/chat/completions", json={**body, **more})
    assert answer.status_code == 200, answer.text
    last = [line for line in answer.text.split("\n\n") if line][-2]
    assert json.loads(last.removeprefix("data: "))["usage"]["completion_tokens"] == 24


@pytest.mark.client(LOAD, "completions")
def test_load_completions(http: httpx.Client) -> None:
    body = {"model": "scripted", "prompt": "How", "max_tokens": 24, "min_tokens": 24, "ignore_eos": True, "stop": None}
    answer = http.post("/v1/completions", json={**body, "stream": True, "stream_options": {"include_usage": True}})
    assert answer.status_code == 200, answer.text
    last = [line for line in answer.text.split("\n\n") if line][-2]
    assert json.loads(last.removeprefix("data: "))["usage"]["completion_tokens"] == 24
