"""The request surface under attack, in both topologies: ids that do not exist in every field that takes ids (B29), requests that
would allocate without bound (B85), how an end is told (B13), nulls (B15), values under greedy (B26), streams (B11)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import psutil
import pytest

from jackfield.entrypoints.http.schemas.openai import CompletionBody
from jackfield.entrypoints.http.schemas.openai_chat import ChatBody, ChatChunk, ChatCompletion
from tests.e2e.http.servers import SIMULATED, Server, events, script, serving

TEXT = "One, two, three. END of it"
CHAT, CMP, GEN = "/v1/chat/completions", "/v1/completions", "/generate"
HELLO = [{"role": "user", "content": "hello"}]
EOS = 2


@pytest.fixture(scope="module", params=["inline", "processes"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    flags = ("--topology", request.param, "--max-total-tokens", "20000", "--max-prompts-per-request", "1024")
    with serving(*SIMULATED, *script(TEXT), *flags) as up:
        yield up


def refused(response: httpx.Response, param: str | None = None) -> dict[str, Any]:
    assert response.status_code in (400, 413, 431), (response.status_code, response.text[:300])
    assert response.headers["content-type"] == "application/json"
    assert len(response.content) < 2000, "a refusal repeats what was sent"
    error: dict[str, Any] = response.json()["error"]
    if param is not None:
        assert error["param"] is not None
        assert error["param"].startswith(param), error
    return error


NOT_IDS = [49152, 10**18, 10**40, -1, True, 1.5, "x", None, [5], {}]


@pytest.mark.parametrize("token", NOT_IDS, ids=str)
def test_b29_no_field_takes_an_id_that_does_not_exist(server: Server, token: Any) -> None:
    sampling = {"max_new_tokens": 2}
    places: list[tuple[str, dict[str, Any], str]] = [
        (CMP, {"prompt": [5, token]}, "prompt"),
        (CMP, {"prompt": [[5], [6, token]]}, "prompt"),
        (GEN, {"input_ids": [5, token], "sampling_params": sampling}, "input_ids"),
        (GEN, {"input_ids": [[5], [6, token]], "sampling_params": sampling}, "input_ids"),
        (GEN, {"text": "a", "sampling_params": {**sampling, "stop_token_ids": [token]}}, "stop_token_ids"),
        (CHAT, {"messages": HELLO, "stop_token_ids": [5, token]}, "stop_token_ids"),
        (CMP, {"prompt": "a", "stop_token_ids": [5, token]}, "stop_token_ids"),
        (GEN, {"text": "a", "return_logprob": True, "token_ids_logprob": [5, token]}, "token_ids_logprob"),
        (GEN, {"text": "a", "sampling_params": {**sampling, "logit_bias": {json.dumps(token): 1}}}, "logit_bias"),
        (CHAT, {"messages": HELLO, "logit_bias": {json.dumps(token): 1}}, "logit_bias"),
        (CMP, {"prompt": "a", "logit_bias": {json.dumps(token): 1}}, "logit_bias"),
    ]
    for stream in (False, True):
        for route, body, param in places:
            refused(server.post(route, {**body, "stream": stream}), param)
    server.assert_alive()


MUCH: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"messages": HELLO, "n": 10**9}, "n"),
    (CMP, {"prompt": "a", "best_of": 10**9}, "best_of"),
    (CHAT, {"messages": HELLO, "logprobs": True, "top_logprobs": 10**6}, "top_logprobs"),
    (CMP, {"prompt": "a", "logprobs": 49152}, "logprobs"),
    (GEN, {"text": "a", "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 49152}, "top_logprobs_num"),
    (GEN, {"text": "a", "return_logprob": True, "token_ids_logprob": list(range(49152))}, "token_ids_logprob"),
    (GEN, {"input_ids": [5] * 7000, "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 100,
           "sampling_params": {"n": 128, "max_new_tokens": 1}}, "logprob_start_len"),
    (CMP, {"prompt": [[5] * 4000] * 100, "echo": True, "logprobs": 5, "max_tokens": 0, "n": 2}, "echo"),
    (CHAT, {"messages": HELLO, "stop": ["x"] * 10_000}, "stop"),
    (CHAT, {"messages": HELLO, "stop": "x" * 100_000}, "stop"),
    (CHAT, {"messages": HELLO, "stop_regex": ["x"] * 1000}, "stop_regex"),
    (CHAT, {"messages": HELLO, "stop_regex": "((a{0,9}){0,9}){0,9}"}, "stop_regex"),
    (CHAT, {"messages": HELLO, "stop_regex": "(" * 250 + "a"}, "stop_regex"),
    (CHAT, {"messages": HELLO, "stop_regex": "(?:.?){511}a"}, "stop_regex"),
    (CHAT, {"messages": HELLO, "stop_token_ids": [5] * 50_000}, "stop_token_ids"),
    (CHAT, {"messages": HELLO, "logit_bias": {str(i): 1 for i in range(49_000)}}, "logit_bias"),
    (CHAT, {"messages": HELLO * 10**4}, "messages"),
    (CHAT, {"messages": HELLO, "tools": [{}] * 10**5}, "tools"),
    (CHAT, {"messages": HELLO, "response_format": {"type": "json_schema", "json_schema": {"enum": [0] * 10**6}}},
     "response_format"),
    (GEN, {"text": "a", "sampling_params": {"json_schema": "[" * 10**6}}, "json_schema"),
    (GEN, {"text": "a", "sampling_params": {"regex": "a" * 10**6}}, "regex"),
    (GEN, {"input_ids": [5] * 10**6}, "input_ids"),
    (CMP, {"prompt": ["a"] * 10_000}, "prompt"),
    (CMP, {"prompt": ["a"] * 1000, "n": 100}, "n"),
    (GEN, {"text": "a", "rid": "r" * 2**20}, "rid"),
    (GEN, {"text": "a", "rid": ["r"] * 10**5}, "rid"),
    (GEN, {"text": "a", "session_params": {"id": "s" * 2**20}}, "session_params"),
    (GEN, {"text": "a", "tenant": "t" * 2**20}, "tenant"),
    (GEN, {"text": "a", "cache_salt": "t" * 2**20}, "cache_salt"),
    (GEN, {"text": "a", "sampling_params": [{}] * 10**5}, "sampling_params"),
    ("/open_session", {"session_id": "s" * 2**20}, "session_id"),
]  # fmt: skip


def test_b85_nothing_is_allocated_without_bound(server: Server) -> None:
    processes = [psutil.Process(int(process["pid"])) for process in server.state()["processes"]]
    with server.client() as client:
        memory: list[int] = []
        for streams in ({}, {"stream": True}, {}):
            for route, body, param in MUCH:
                refused(client.post(route, json={**body, **streams} if route != "/open_session" else body), param)
            refused(client.get("/ping", headers={"x-pad": "y" * 2**16}))
            refused(client.get("/ping?" + "a=1&" * 1000))
            refused(client.post(CMP, content=b"[" * 2**22, headers={"content-type": "application/json"}))
            assert client.post(CMP, content=b"x" * 2**24).status_code == 413
            memory.append(sum(process.memory_info().rss for process in processes))
    # What the first round took is kept by the allocator for the next; one that leaked would take it again.
    assert memory[-1] - memory[0] < 48 * 2**20, [size >> 20 for size in memory]
    server.assert_alive()


def test_an_unknown_field_is_named_whatever_its_name(server: Server) -> None:
    for name in ("a b", "49152", "x.y", ""):
        assert repr(name) in refused(server.post(GEN, {"text": "a", name: 1}))["message"]


def shown(server: Server, route: str, **body: Any) -> list[tuple[str, Any]]:
    """Text, and the fields of the end, of the answer and of the same answer streamed."""
    whole = server.post(route, {"max_tokens": 100, **body})
    assert whole.status_code == 200, whole.text
    (choice,) = whole.json()["choices"]
    found = events(server.post(route, {"max_tokens": 100, **body, "stream": True}))
    parts = [part for event in found for part in event["choices"]]
    text = "".join(part["text"] if route == CMP else part["delta"].get("content", "") for part in parts)
    assert all("matched_stop" not in part for part in parts[:-1])
    ends = [{name: one[name] for name in ("finish_reason", "matched_stop")} for one in (choice, parts[-1])]
    if route == CHAT:
        ChatCompletion.model_validate(whole.json())
        for event in found:
            ChatChunk.model_validate(event)
    return [(choice["text"] if route == CMP else choice["message"]["content"], ends[0]), (text, ends[1])]


@pytest.mark.parametrize("route", [CHAT, CMP])
@pytest.mark.parametrize("skip", [None, True, False])
@pytest.mark.parametrize("keep", [None, True, False])
@pytest.mark.parametrize("ids", [None, [EOS]])
def test_b13_the_end_token_shows_on_demand_and_cuts_nothing(
    server: Server, route: str, skip: bool | None, keep: bool | None, ids: list[int] | None
) -> None:
    prompt: dict[str, Any] = {"messages": HELLO} if route == CHAT else {"prompt": "hello"}
    options = {"skip_special_tokens": skip, "no_stop_trim": keep, "stop_token_ids": ids}
    expected = TEXT + ("<|im_end|>" if keep and skip is False else "")
    end = {"finish_reason": "stop", "matched_stop": EOS}
    assert shown(server, route, **prompt, **options) == [(expected, end)] * 2


@pytest.mark.parametrize("route", [CHAT, CMP])
def test_what_stopped_a_choice_is_told(server: Server, route: str) -> None:
    prompt: dict[str, Any] = {"messages": HELLO} if route == CHAT else {"prompt": "hello"}
    for more, text, matched in (
        ({"stop": ["zzz", "wo, t"]}, "One, t", "wo, t"),
        ({"stop_regex": "[a-z]{3} END|e\\. E"}, "One, two, thre", "[a-z]{3} END|e\\. E"),
        ({"max_tokens": 2}, None, None),
    ):
        for told, end in shown(server, route, **prompt, **more):
            assert text in (None, told)
            assert end == {"finish_reason": "stop" if matched else "length", "matched_stop": matched}


def test_b15_every_field_may_be_null(server: Server) -> None:
    for route, model, needed in (
        (CHAT, ChatBody, {"messages": HELLO}),
        (CMP, CompletionBody, {"prompt": "hello"}),
    ):
        for stream in (False, True):
            body = {**dict.fromkeys(model.model_fields), **needed, "stream": stream, "max_tokens": 3}
            answer = server.post(route, body)
            assert answer.status_code == 200, answer.text


def test_b26_the_values_are_the_models_whatever_is_sampled(server: Server) -> None:
    """The script fixes the tokens, so every temperature and filter must tell the same values."""
    told = []
    for sampling in ({"temperature": 0}, {"temperature": 1}, {"temperature": 2, "top_k": 1}, {"top_p": 0.01}):
        answer = server.post(
            CHAT, {"messages": HELLO, "max_tokens": 20, "logprobs": True, "top_logprobs": 5, **sampling}
        )
        content = answer.json()["choices"][0]["logprobs"]["content"]
        assert all(-1000 < top["logprob"] < 0 for token in content for top in token["top_logprobs"])
        told.append(content)
    assert told.count(told[0]) == len(told)


LATE: list[dict[str, Any]] = [
    {"n": 2, "best_of": 3},
    {"top_logprobs": 3},
    {"stop_regex": "a*"},
    {"min_tokens": 9, "max_tokens": 5},
    {"logit_bias": {"5": 101}},
    {"frequency_penalty": 2.1},
    {"repetition_penalty": 0},
    {"logits_processors": {"nobody": {}}},
    {"stream_interval": 0},
    {"priority": 2**31},
    {"deadline_s": -1},
    {"max_tokens": 5, "messages": [{"role": "user", "content": "word " * 9000}]},
]


@pytest.mark.parametrize("more", LATE, ids=lambda more: ",".join(more))
def test_b11_what_is_invalid_is_no_stream(server: Server, more: dict[str, Any]) -> None:
    refused(server.post(CHAT, {"messages": HELLO, "stream": True, **more}))


def test_the_official_client_reads_what_stopped_a_choice_and_its_values(server: Server) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", http_client=server.client()) as client:
        answer = client.chat.completions.create(
            model="SmolLM2-135M-Instruct", messages=HELLO, stop="three", logprobs=True, top_logprobs=2  # type: ignore[arg-type]
        )  # fmt: skip
        (choice,) = answer.choices
        assert choice.message.content == "One, two, "
        assert (choice.model_extra or {})["matched_stop"] == "three"
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert len(choice.logprobs.content) == answer.usage.completion_tokens  # type: ignore[union-attr]
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model="SmolLM2-135M-Instruct", prompt="a", logit_bias={"49152": 1}, stream=True)
        assert caught.value.param == "logit_bias"
