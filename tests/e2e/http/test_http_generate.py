"""`/generate` over a real server, in SGLang's shape."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from jackfield.entrypoints.http.schemas.native import GenerateAnswer
from tests.e2e.http.servers import SIMULATED, Server, events, script, serving

GREEDY = {"temperature": 0}


def test_one_answer(server: Server, text: str) -> None:
    for method in ("POST", "PUT"):
        with server.client() as client:
            answer = client.request(method, "/generate", json={"text": "hi", "sampling_params": GREEDY}).json()
        GenerateAnswer.model_validate(answer)
        assert answer["text"] == text
        meta = answer["meta_info"]
        assert meta["finish_reason"] == {"type": "stop", "matched": 2}
        assert meta["completion_tokens"] == len(answer["output_ids"])


@pytest.mark.parametrize("prompt", [{"text": ["a", "b", "c"]}, {"input_ids": [[5], [6, 7], [8]]}])
def test_a_batch_comes_back_in_its_order(server: Server, text: str, prompt: dict[str, Any]) -> None:
    lengths = (1, 3, 2)
    body = {**prompt, "sampling_params": [{**GREEDY, "max_new_tokens": n} for n in lengths], "rid": ["x", "y", "z"]}
    answers = server.generate(**body)
    assert [answer["meta_info"]["completion_tokens"] for answer in answers] == list(lengths)
    assert [answer["meta_info"]["id"] for answer in answers] == ["x", "y", "z"]
    assert all(text.startswith(answer["text"]) for answer in answers)
    last: dict[int, Any] = {}
    for event in events(server.post("/generate", {**body, "stream": True})):
        GenerateAnswer.model_validate(event)
        last[event["index"]] = event
    assert [last[i]["output_ids"] for i in range(3)] == [answer["output_ids"] for answer in answers]
    assert all(last[i]["meta_info"]["finish_reason"] is not None for i in range(3))


def test_a_stream_is_cumulative(server: Server, text: str) -> None:
    response = server.post("/generate", {"text": "hi", "sampling_params": GREEDY, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    found = events(response)
    assert found[-1]["text"] == text
    for before, after in itertools.pairwise(found):
        assert after["text"].startswith(before["text"])
        assert before["meta_info"]["finish_reason"] is None


def test_the_same_tokens_by_every_route(server: Server, text: str) -> None:
    ids = server.generate(text="hi", sampling_params=GREEDY)["output_ids"]
    completion = server.post("/v1/completions", {"prompt": "hi", "temperature": 0, "max_tokens": 100}).json()
    chat = server.post(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}
    ).json()
    assert completion["choices"][0]["text"] == chat["choices"][0]["message"]["content"] == text
    assert completion["usage"]["completion_tokens"] == chat["usage"]["completion_tokens"] == len(ids)


def test_deltas_add_up(text: str) -> None:
    with serving(*SIMULATED, *script(text), "--incremental-streaming-output", "--topology", "inline") as server:
        whole = server.generate(text="hi", sampling_params=GREEDY)
        found = events(server.post("/generate", {"text": "hi", "sampling_params": GREEDY, "stream": True}))
        assert "".join(event["text"] for event in found) == whole["text"] == text
        assert [token for event in found for token in event["output_ids"]] == whole["output_ids"]
        batch = events(server.post("/generate", {"text": ["a", "b"], "sampling_params": GREEDY, "stream": True}))
        for i in range(2):
            assert "".join(event["text"] for event in batch if event["index"] == i) == text


REFUSED: list[tuple[dict[str, Any], str | None]] = [
    ({}, "text"),
    ({"text": "a", "input_ids": [1]}, "text"),
    ({"text": ""}, "text"),
    ({"text": []}, "text"),
    ({"text": [1]}, "text"),
    ({"text": {"a": 1}}, "text"),
    ({"text": "\udc00".encode("utf-8", "surrogatepass").decode("utf-8", "replace"), "surprise": 1}, "surprise"),
    ({"input_ids": []}, "input_ids"),
    ({"input_ids": [49152]}, "input_ids"),
    ({"input_ids": [10**9]}, "input_ids"),
    ({"input_ids": [-1]}, "input_ids"),
    ({"input_ids": [True]}, "input_ids"),
    ({"input_ids": [1.5]}, "input_ids"),
    ({"input_ids": ["a"]}, "input_ids"),
    ({"input_ids": [[1], 2]}, "input_ids"),
    ({"input_ids": [5] * 9000}, "input_ids"),
    ({"input_ids": [10**30]}, "input_ids"),
    ({"text": "word " * 9000}, "input_ids"),
    ({"text": ["a"] * 1025}, "text"),
    ({"text": "a", "sampling_params": {"temperature": -1}}, "temperature"),
    ({"text": "a", "sampling_params": {"max_tokens": 1}}, "max_tokens"),
    ({"text": "a", "sampling_params": {"n": 10**9}}, "n"),
    ({"text": "a", "sampling_params": {"stop": ["x"] * 10000}}, "stop"),
    ({"text": "a", "sampling_params": {"stop_token_ids": [49152]}}, "stop_token_ids"),
    ({"text": "a", "sampling_params": [{}, {}]}, "sampling_params"),
    ({"text": "a", "sampling_params": "hot"}, "sampling_params"),
    ({"text": "a", "rid": "x" * 129}, "rid"),
    ({"text": "a", "rid": ""}, "rid"),
    ({"text": "a", "rid": 7}, "rid"),
    ({"text": ["a", "b"], "rid": ["same", "same"]}, "rid"),
    ({"text": "a", "stream": "yes"}, "stream"),
    ({"text": "a", "return_logprob": 1}, "return_logprob"),
    ({"text": "a", "image_data": "file:///etc/passwd"}, "image_data"),
    ({"text": "a", "lora_path": "../x"}, "lora_path"),
    ({"text": "a", "session_params": {"id": "x"}}, "session_params.id"),
    ({"text": "a", "session_params": "x"}, "session_params"),
    ({"text": "a", "session_params": {}}, "session_params.id"),
    ({"text": ["a"], "session_params": {"id": "x"}}, "session_params"),
    ({"text": "a", "session_params": {"id": "x"}, "sampling_params": {"n": 2}}, "session_params"),
    ({"text": "a", "top_logprobs_num": 10**6}, "top_logprobs_num"),
]


@pytest.mark.parametrize(("body", "param"), REFUSED, ids=lambda value: str(value)[:60])
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_done_is_a_400_that_names_the_field(
    server: Server, body: dict[str, Any], param: str, stream: bool
) -> None:
    response = server.post("/generate", {"stream": True, **body} if stream else body)
    assert response.status_code == 400, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["param"] is not None
    assert error["param"].partition("[")[0] in (param, "text"), error
    assert len(response.text) < 2000


@pytest.mark.parametrize(
    "neutral", [{"return_logprob": False}, {"image_data": None}, {"top_logprobs_num": 0}, {"log_metrics": True}]
)
def test_fields_that_ask_for_nothing_pass(server: Server, neutral: dict[str, Any]) -> None:
    server.generate(text="a", sampling_params={"max_new_tokens": 1}, **neutral)


def test_a_text_that_is_too_long_is_told_of_the_text(server: Server) -> None:
    for name, value in (("text", "word " * 9000), ("text", ["a", "word " * 9000]), ("input_ids", [5] * 9000)):
        refused = server.post("/generate", {name: value})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == name
        assert refused.json()["error"]["code"] == "context_length_exceeded"


def test_a_refusal_does_not_repeat_megabytes(server: Server) -> None:
    refused = server.post("/generate", {"input_ids": [5, "x" * 1_000_000]})
    assert refused.status_code == 400
    assert len(refused.content) < 1000


def test_a_rid_writes_no_line_of_its_own_into_the_log() -> None:
    with serving(*SIMULATED) as server:
        answer = server.generate(
            input_ids=[5, 6],
            rid="mine\nCRITICAL forged",
            sampling_params={"max_new_tokens": 2**31 - 1, "ignore_eos": True},
        )
        assert answer["meta_info"]["id"] == "mine\nCRITICAL forged"
        assert "mine\\nCRITICAL forged" in server.log
        assert "\nCRITICAL" not in server.log
