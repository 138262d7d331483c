"""/generate on the embedded model: what it tells beside the answer, and the fields of SGLang's that ask for it, divide the
cache, or mean nothing here."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jackfield.entrypoints.http.schemas.native import GenerateAnswer
from tests.e2e.http.servers import Server, events

pytestmark = pytest.mark.model

GEN = "/generate"
SHORT = {"temperature": 0, "max_new_tokens": 3, "ignore_eos": True}


def stream(server: Server, **body: Any) -> list[Any]:
    answer = server.post(GEN, {**body, "stream": True})
    assert answer.status_code == 200, answer.text
    return events(answer)


def count_of(server: Server, name: str) -> float:
    lines = [line for line in server.get("/metrics").text.splitlines() if line.startswith(f"jackfield_{name}")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_a_complete_answer_says_what_it_cost(real: Server) -> None:
    before = time.time()
    answer = real.generate(text="What it costs is", sampling_params=SHORT)
    GenerateAnswer.model_validate(answer)
    meta = answer["meta_info"]
    assert meta["weight_version"] == real.get("/model_info").json()["weight_version"] == "default"
    assert 0 <= meta["queue_time"] == meta["stage_times"]["queue"] <= meta["e2e_latency"]
    assert before <= meta["response_sent_to_client_ts"] <= time.time()
    assert meta["num_retractions"] == 0
    assert meta["cached_tokens_details"] == {"device": meta["cached_tokens"]}
    found = stream(real, text="What it costs is", sampling_params=SHORT)
    for event in found[:-1]:
        assert not {"queue_time", "response_sent_to_client_ts", "cached_tokens_details"} & set(event["meta_info"])
    GenerateAnswer.model_validate(found[-1])
    assert found[-1]["meta_info"]["cached_tokens_details"] == {"device": 3}


def test_the_prompts_ids_come_with_the_complete_answer(real: Server) -> None:
    ids = real.post("/tokenize", {"prompt": ["The sea is", "One"]}).json()["tokens"]
    asked = {"sampling_params": {**SHORT, "n": 2}, "return_prompt_token_ids": True}
    answers = real.generate(text=["The sea is", "One"], **asked)
    assert [answer["prompt_token_ids"] for answer in answers] == [ids[0], ids[0], ids[1], ids[1]]
    (single, *_) = real.generate(input_ids=ids[0], **asked)
    assert single["prompt_token_ids"] == ids[0]
    found = stream(real, text="The sea is", sampling_params=SHORT, return_prompt_token_ids=True)
    assert [event.get("prompt_token_ids") for event in found] == [None] * (len(found) - 1) + [ids[0]]
    assert "prompt_token_ids" not in real.generate(text="The sea is", sampling_params=SHORT)


def test_prefixes_are_shared_only_under_the_same_extra_key(real: Server) -> None:
    def cached(**more: Any) -> int:
        answer = real.generate(text="A prompt that is long enough to tell", sampling_params=SHORT, **more)
        return int(answer["meta_info"]["cached_tokens"])

    full = len(real.post("/tokenize", {"prompt": "A prompt that is long enough to tell"}).json()["tokens"]) - 1
    assert [cached(), cached()] == [0, full]
    assert [cached(extra_key="a"), cached(extra_key="a"), cached(extra_key="b")] == [0, full, 0]
    assert [cached(extra_key="a", cache_salt="s"), cached(cache_salt="s"), cached(cache_salt="a")] == [0, 0, 0]
    assert cached(extra_key="a", cache_salt="s") == full
    batch = real.generate(
        text=["A prompt that is long enough to tell"] * 2, sampling_params=SHORT, extra_key=["a", "never seen"]
    )
    assert [answer["meta_info"]["cached_tokens"] for answer in batch] == [full, 0]


def test_log_metrics_false_counts_in_no_metric(real: Server) -> None:
    names = (
        "num_received_requests_total",
        "num_requests_total",
        "generation_tokens_total",
        "e2e_request_latency_seconds_count",
    )
    before = [count_of(real, name) for name in names]
    real.generate(text="Unseen", sampling_params=SHORT, log_metrics=False)
    stream(real, text="Unseen", sampling_params=SHORT, log_metrics=False)
    assert [count_of(real, name) for name in names] == before
    real.generate(text="Seen", sampling_params=SHORT, log_metrics=True)
    assert [count_of(real, name) for name in names] == [before[0] + 1, before[1] + 1, before[2] + 3, before[3] + 1]


UNUSED: dict[str, Any] = {
    "routing_key": "tenant-7",
    "conversation_id": "c",
    "custom_labels": {"team": "x"},
    "external_trace_header": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    "received_time": 1.5,
    "validation_time": 0.1,
    "kv_hints": {"a": 1},
}
NEUTRAL: dict[str, Any] = {
    "return_hidden_states": False,
    "return_routed_experts": False,
    "return_entropy": False,
    "background": False,
    "require_reasoning": False,
    "routed_dp_rank": 0,
    "data_parallel_rank": None,
    "bootstrap_host": None,
    "image_data": [],
    "modalities": [],
    "lora_path": None,
    "custom_logit_processor": None,
    "no_logs": True,
}


def test_what_means_nothing_here_changes_nothing(real: Server) -> None:
    sampling = {
        **SHORT,
        "custom_params": {},
        "spaces_between_special_tokens": True,
        "beam_width": 1,
        "watermark": False,
    }
    plain = real.generate(text="The sea is", sampling_params=SHORT)
    answer = real.generate(text="The sea is", sampling_params=sampling, **UNUSED, **NEUTRAL)
    assert (answer["text"], answer["output_ids"]) == (plain["text"], plain["output_ids"])
    assert "team" not in real.get("/metrics").text
    assert count_of(real, "num_requests_total") > 0


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"return_hidden_states": True}, "return_hidden_states"),
    ({"return_hidden_states": "last"}, "return_hidden_states"),
    ({"return_routed_experts": True}, "return_routed_experts"),
    ({"return_entropy": True}, "return_entropy"),
    ({"routed_dp_rank": 1}, "routed_dp_rank"),
    ({"bootstrap_host": "other"}, "bootstrap_host"),
    ({"image_data": "x"}, "image_data"),
    ({"lora_path": "a"}, "lora_path"),
    ({"max_thinking_tokens": 5}, "max_thinking_tokens"),
    ({"custom_logit_processor": "x"}, "custom_logit_processor"),
    ({"sampling_params": {"custom_params": {"a": 1}}}, "custom_params"),
    ({"sampling_params": {"beam_width": 2}}, "beam_width"),
    ({"return_prompt_token_ids": 1}, "return_prompt_token_ids"),
    ({"log_metrics": "no"}, "log_metrics"),
    ({"no_logs": 1}, "no_logs"),
    ({"extra_key": 5}, "extra_key"),
    ({"extra_key": ""}, "extra_key"),
    ({"extra_key": "x" * 257}, "extra_key"),
    ({"extra_key": ["a", "b"]}, "extra_key"),
]


@pytest.mark.parametrize(("more", "param"), REFUSED, ids=lambda value: str(value)[:50])
def test_what_cannot_be_done_is_refused_by_name(real: Server, more: dict[str, Any], param: str) -> None:
    for streaming in (False, True):
        answer = real.post(GEN, {"text": "a", **more, "stream": streaming})
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == param
