"""n > 1 over HTTP: shapes, one finish an index (B08), usage (B10), order (B28), disconnects (B44), the official client."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from jackfield.entrypoints.http.schemas.openai import Completion
from jackfield.entrypoints.http.schemas.openai_chat import ChatChunk, ChatCompletion
from tests.e2e.http.servers import LONG, SIMULATED, SLOW, Server, events, serving, until

CHAT, CMP = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(*SIMULATED, "--max-total-tokens", "20000") as up:
        yield up


@pytest.fixture(scope="module")
def slow() -> Iterator[Server]:
    with serving(*SIMULATED, *SLOW, "--max-total-tokens", "20000", "--max-running-requests", "2") as up:
        yield up


def ask(server: Server, route: str, **body: Any) -> Any:
    answer = server.post(route, {"max_tokens": 5, "ignore_eos": True, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_chat_with_three_choices(server: Server) -> None:
    answer = ask(server, CHAT, messages=HELLO, n=3, best_of=3)
    ChatCompletion.model_validate(answer)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    single = ask(server, CHAT, messages=HELLO)
    assert answer["usage"]["prompt_tokens"] == single["usage"]["prompt_tokens"]
    assert answer["usage"]["completion_tokens"] == 15


@pytest.mark.parametrize("usage", [False, True])
def test_b08_a_chat_stream_has_one_role_and_one_finish_an_index(server: Server, usage: bool) -> None:
    found = events(
        server.post(
            CHAT,
            {"messages": HELLO, "n": 3, "max_tokens": 5, "ignore_eos": True, "stream": True,
             "stream_options": {"include_usage": usage}},
        )
    )  # fmt: skip
    for chunk in found:
        ChatChunk.model_validate(chunk)
    choices = [choice for chunk in found for choice in chunk["choices"]]
    finishes = Counter(choice["index"] for choice in choices if choice["finish_reason"] is not None)
    roles = Counter(choice["index"] for choice in choices if "role" in choice["delta"])
    assert finishes == roles == Counter({0: 1, 1: 1, 2: 1})
    for index in range(3):
        own = [choice for choice in choices if choice["index"] == index]
        assert "role" in own[0]["delta"]
        assert own[-1]["finish_reason"] == "length"
    assert [bool(chunk["usage"]) for chunk in found] == [False] * (len(found) - 1) + [usage]
    assert bool(found[-1]["choices"]) is not usage


def test_b10_streamed_usage_counts_each_prompt_once(server: Server) -> None:
    body = {"prompt": [list(range(5, 60)), list(range(100, 130))], "n": 2, "max_tokens": 5, "ignore_eos": True}
    server.post("/flush_cache", {})
    whole = ask(server, CMP, **body)
    server.post("/flush_cache", {})
    found = events(server.post(CMP, {**body, "stream": True, "stream_options": {"include_usage": True}}))
    assert found[-1]["usage"] == whole["usage"]
    assert whole["usage"]["prompt_tokens"] == 85
    assert whole["usage"]["completion_tokens"] == 20
    assert whole["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    # Again, with all of both prompts but their last tokens in the cache: summed over prompts, not over answers.
    warm = ask(server, CMP, **body)
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] == 54 + 29
    found = events(server.post(CMP, {**body, "stream": True, "stream_options": {"include_usage": True}}))
    assert found[-1]["usage"] == warm["usage"]


def test_b28_six_choices_in_prompt_major_order() -> None:
    """Prompts as texts and as ids, whole and streamed; with echo each answer begins with its own prompt."""
    script = [f"{i}{j}" + " x" * (3 - i) for i in range(3) for j in range(2)]
    texts = ["A", "BB", "CCC"]
    ids = [[49], [50, 50], [51, 51, 51]]
    cases = list(itertools.product((texts, ids), (False, True), (False, True)))
    option = f"worker.simulated.script={json.dumps(script * len(cases))}"
    with serving(*SIMULATED, "--option", option, check=False) as server:
        for prompt, stream, echo in cases:
            body = {"prompt": prompt, "n": 2, "max_tokens": 20, "temperature": 0, "stream": stream, "echo": echo}
            response = server.post(CMP, body)
            told = dict.fromkeys(range(6), "")
            for answer in events(response) if stream else [response.json()]:
                Completion.model_validate(answer)
                for choice in answer["choices"]:
                    told[choice["index"]] += choice["text"]
            own = texts if echo else [""] * 3
            assert told == {i: own[i // 2] + script[i] for i in range(6)}


def test_native_answers_are_a_list(server: Server) -> None:
    sampling = {"n": 2, "max_new_tokens": 3, "ignore_eos": True}
    answers = server.generate(input_ids=[5, 6, 7], sampling_params=sampling, rid="x")
    assert [answer["meta_info"]["id"] for answer in answers] == ["x-0", "x-1"]
    found = events(server.post("/generate", {"input_ids": [5, 6], "sampling_params": sampling, "stream": True}))
    ends = Counter(event["index"] for event in found if event["meta_info"]["finish_reason"])
    assert ends == Counter({0: 1, 1: 1})


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"messages": HELLO, "n": 129}, "n"),
    (CHAT, {"messages": HELLO, "n": 0}, "n"),
    (CHAT, {"messages": HELLO, "n": True}, "n"),
    (CHAT, {"messages": HELLO, "n": "2"}, "n"),
    (CMP, {"prompt": "a", "n": 10**9}, "n"),
    (CHAT, {"messages": HELLO, "n": 2, "best_of": 3}, "best_of"),
    (CMP, {"prompt": "a", "n": 2, "best_of": 1}, "best_of"),
    (CMP, {"prompt": "a", "best_of": 10**9}, "best_of"),
    (CMP, {"prompt": ["a"] * 1000, "n": 2}, "n"),
    ("/generate", {"text": ["a", "b"], "sampling_params": [{"n": 2}, {"n": 3}]}, "n"),
]


@pytest.mark.parametrize(("route", "body", "param"), REFUSED, ids=lambda value: str(value)[:60])
def test_b85_refused_by_name(server: Server, route: str, body: dict[str, Any], param: str) -> None:
    for stream in (False, True):
        answer = server.post(route, {**body, "stream": stream})
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == param


def test_b15_null_is_one(server: Server) -> None:
    assert len(ask(server, CHAT, messages=HELLO, n=None, best_of=None)["choices"]) == 1


def test_b44_a_client_that_goes_away_ends_all_three_queued_ones_too(slow: Server) -> None:
    body = {"input_ids": [5, 6, 7], "sampling_params": {**LONG, "n": 3}, "stream": True}
    with slow.client() as client, client.stream("POST", "/generate", json=body) as response:
        until(lambda: slow.scheduler() == (2, 1))
        next(response.iter_raw())
    until(lambda: slow.scheduler() == (0, 0))
    slow.assert_alive()


def test_an_abort_by_the_common_id_ends_all_choices(slow: Server) -> None:
    body = {"input_ids": [5, 6, 7], "sampling_params": {**LONG, "n": 3}, "stream": True, "rid": "job"}
    with slow.client() as client, client.stream("POST", "/generate", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        assert slow.post("/abort_request", {"rid": "job"}).json() == {"aborted": 3}
        told = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    ends = [one["meta_info"]["finish_reason"]["type"] for one in told if one["meta_info"]["finish_reason"]]
    assert ends == ["abort"] * 3


def test_an_abort_of_one_choice_leaves_the_others_alone(slow: Server) -> None:
    sampling = {"max_new_tokens": 40, "ignore_eos": True, "n": 3}
    body = {"input_ids": [5, 6, 7], "sampling_params": sampling, "stream": True, "rid": "job"}
    with slow.client() as client, client.stream("POST", "/generate", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        assert slow.post("/abort_request", {"rid": "job-1"}).json() == {"aborted": 1}
        told = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    ends = {one["index"]: one for one in told if one["meta_info"]["finish_reason"]}
    assert [ends[i]["meta_info"]["finish_reason"]["type"] for i in range(3)] == ["length", "abort", "length"]
    assert [len(ends[i]["output_ids"]) for i in (0, 2)] == [40, 40]
    assert len(ends[1]["output_ids"]) < 40


def test_the_official_client_reads_choices(server: Server) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    with client:
        answer = client.chat.completions.create(
            model="SmolLM2-135M-Instruct", messages=HELLO, n=2, max_tokens=3  # type: ignore[arg-type]
        )  # fmt: skip
        assert [choice.index for choice in answer.choices] == [0, 1]
        stream = client.completions.create(
            model="SmolLM2-135M-Instruct", prompt="a", n=2, max_tokens=3, stream=True, extra_body={"ignore_eos": True}
        )
        ends = Counter(choice.index for chunk in stream for choice in chunk.choices if choice.finish_reason)
        assert ends == Counter({0: 1, 1: 1})
