"""Every ceiling of a request (B85): what is just within it is taken, one more is refused by the field's name and the flag's, over
HTTP and by Engine alike. A setting without a case here fails the first test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jackfield import Engine
from jackfield.config.fields import facts_of
from jackfield.config.limit_fields import LimitFields
from jackfield.managers.errors import RequestError
from tests.e2e.http.servers import SIMULATED, Server, script, serving

LIMITS: dict[str, int] = {
    "max_header_bytes": 3000,
    "max_query_fields": 3,
    "max_request_bytes": 40_000,
    "max_json_depth": 8,
    "max_json_values": 2000,
    "max_tokenize_length": 12,
    "max_request_id_length": 70,
    "max_prompts_per_request": 6,
    "max_choices": 4,
    "max_stops": 2,
    "max_stop_length": 10,
    "max_stop_regex_length": 12,
    "max_stop_regex_match": 8,
    "max_stop_regex_work": 200,
    "max_stop_token_ids": 3,
    "max_logit_bias": 3,
    "max_top_logprobs": 3,
    "max_token_ids_logprob": 3,
    "max_logprob_values": 40,
    "max_prompt_logprob_values": 20,
    "max_streamed_prompt_logprob_values": 10,
    "max_cache_salt_length": 9,
    "max_tenant_length": 7,
    "max_messages": 6,
    "max_tools": 2,
    "max_chat_template_kwargs_bytes": 40,
    "max_template_chars": 2000,
    "max_template_steps": 4,
    "max_schema_bytes": 200,
    "max_schema_depth": 4,
    "max_sessions": 2,
    "max_session_tokens": 50,
    "max_session_turns": 2,
}
CHAT, CMP, GEN = "/v1/chat/completions", "/v1/completions", "/generate"

ELSEWHERE = {
    "max_concurrent_requests": "tests/unit/http/test_http_app.py",
    "receive_timeout": "tests/unit/http/test_http_protocol.py",
    "session_timeout": "tests/unit/text/test_sessions.py",
    "chat_template_kwargs": "tests/e2e/http/test_http_openai.py",
}

Body = dict[str, Any]


def sampling(**fields: Any) -> Body:
    return {"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 2, **fields}}


def scored(ids: Any, **more: Any) -> Body:
    return {"input_ids": ids, "sampling_params": {"max_new_tokens": 1}, "return_logprob": True, **more}


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


NATIVE: list[tuple[str, str, Body | None, Body]] = [
    ("max_request_id_length", "rid", sampling() | {"rid": "r" * 70}, sampling() | {"rid": "r" * 71}),
    ("max_prompts_per_request", "prompt", {"text": ["a"] * 6}, {"text": ["a"] * 7}),
    ("max_prompts_per_request", "input_ids", {"input_ids": [[5]] * 6}, {"input_ids": [[5]] * 7}),
    ("max_prompts_per_request", "n", {"text": ["a"] * 2, "sampling_params": {"n": 3}},
     {"text": ["a"] * 2, "sampling_params": {"n": 4}}),
    ("max_choices", "n", sampling(n=4), sampling(n=5)),
    ("max_choices", "best_of", sampling(n=4, best_of=4), sampling(n=4, best_of=10**9)),
    ("max_stops", "stop", sampling(stop=["zx", "zy"]), sampling(stop=["zx", "zy", "zz"])),
    ("max_stops", "stop_regex", sampling(stop_regex=["zx", "zy"]), sampling(stop_regex=["zx", "zy", "zz"])),
    ("max_stop_length", "stop", sampling(stop="z" * 10), sampling(stop="z" * 11)),
    ("max_stop_regex_length", "stop_regex", sampling(stop_regex="[zzzzzzzzzz]"), sampling(stop_regex="[zzzzzzzzzzz]")),
    ("max_stop_regex_match", "stop_regex", sampling(stop_regex="z{8}"), sampling(stop_regex="z{9}")),
    ("max_stop_regex_work", "stop_regex", sampling(stop_regex="z{8}"), sampling(stop_regex="z(?:y?.?){3}")),
    ("max_stop_token_ids", "stop_token_ids", sampling(stop_token_ids=[7, 8, 9]), sampling(stop_token_ids=[7, 8, 9, 10])),
    ("max_logit_bias", "logit_bias", None,
     sampling(logit_bias={str(i): 1 for i in range(4)})),
    ("max_top_logprobs", "top_logprobs_num", scored([5], top_logprobs_num=3), scored([5], top_logprobs_num=4)),
    ("max_token_ids_logprob", "token_ids_logprob", scored([5], token_ids_logprob=[1, 2, 3]),
     scored([5], token_ids_logprob=[1, 2, 3, 4])),
    ("max_logprob_values", "top_logprobs_num", scored([5] * 2, sampling_params={"max_new_tokens": 10}, top_logprobs_num=3),
     scored([5] * 2, sampling_params={"max_new_tokens": 11}, top_logprobs_num=3)),
    ("max_prompt_logprob_values", "logprob_start_len", scored([5] * 20, logprob_start_len=0),
     scored([5] * 21, logprob_start_len=0)),
    ("max_prompt_logprob_values", "logprob_start_len", scored([[5] * 10] * 2, logprob_start_len=0),
     scored([[5] * 7] * 3, logprob_start_len=0)),
    ("max_streamed_prompt_logprob_values", "logprob_start_len", scored([5] * 10, logprob_start_len=0, stream=True),
     scored([5] * 11, logprob_start_len=0, stream=True)),
    ("max_cache_salt_length", "cache_salt", sampling() | {"cache_salt": "s" * 9}, sampling() | {"cache_salt": "s" * 10}),
    ("max_tenant_length", "tenant", sampling() | {"tenant": "t" * 7}, sampling() | {"tenant": "t" * 8}),
    # What constrains an answer has its size whether or not this server can do it; within the ceiling others answer for it.
    ("max_schema_bytes", "json_schema", None, sampling(json_schema=f'{{"title": "{"x" * 200}"}}')),
    ("max_schema_bytes", "json_schema", None, sampling(json_schema={"enum": ["xxxxxxxxx"] * 30})),
    ("max_schema_bytes", "regex", None, sampling(regex="x" * 201)),
    ("max_schema_bytes", "ebnf", None, sampling(ebnf="x" * 201)),
    ("max_schema_bytes", "structural_tag", None, sampling(structural_tag="x" * 201)),
    ("max_schema_depth", "json_schema", None, sampling(json_schema='{"a":' * 5 + "1" + "}" * 5)),
    ("max_schema_depth", "json_schema", None, sampling(json_schema=deep(5))),
]  # fmt: skip
"""Setting, field that is named, a body of /generate that is taken (None: not asked), one that is not."""


def turns(count: int, text: str = "hi") -> Body:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i in range(count)]
    return {"messages": messages, "max_tokens": 1}


def tool(**more: Any) -> Body:
    return {"type": "function", "function": {"name": "f", **more}}


OPENAI: list[tuple[str, str, str, Body | None, Body]] = [
    ("max_messages", "messages", CHAT, None, turns(7)),
    ("max_template_steps", "messages", CHAT, turns(3), turns(5)),
    ("max_template_chars", "messages", CHAT, turns(1, "x" * 500), turns(1, "x" * 2000)),
    ("max_tools", "tools", CHAT, None, turns(1) | {"tools": [tool()] * 3}),
    ("max_schema_bytes", "tools", CHAT, None, turns(1) | {"tools": [tool(description="x" * 300)]}),
    ("max_schema_depth", "tools", CHAT, None, turns(1) | {"tools": [tool(parameters=deep(4))]}),
    ("max_schema_bytes", "response_format", CHAT, None,
     turns(1) | {"response_format": {"type": "json_schema", "json_schema": {"name": "x" * 201, "schema": {}}}}),
    ("max_chat_template_kwargs_bytes", "chat_template_kwargs", CHAT,
     turns(1) | {"chat_template_kwargs": {"reasoning_effort": "low"}},
     turns(1) | {"chat_template_kwargs": {"reasoning_effort": "x" * 40}}),
    ("max_choices", "n", CHAT, turns(1) | {"n": 4}, turns(1) | {"n": 10**9}),
    ("max_choices", "n", CMP, {"prompt": "a", "n": 4, "max_tokens": 1}, {"prompt": "a", "n": 5}),
    ("max_prompts_per_request", "prompt", CMP, {"prompt": ["a"] * 6, "max_tokens": 1}, {"prompt": ["a"] * 7}),
    ("max_top_logprobs", "top_logprobs", CHAT, turns(1) | {"logprobs": True, "top_logprobs": 3},
     turns(1) | {"logprobs": True, "top_logprobs": 4}),
    ("max_top_logprobs", "logprobs", CMP, {"prompt": "a", "max_tokens": 1, "logprobs": 3},
     {"prompt": "a", "max_tokens": 1, "logprobs": 4}),
    (
        "max_tokenize_length",
        "prompt",
        "/tokenize",
        {"prompt": ["x" * 5, "y" * 7]},
        {"prompt": ["x" * 5, "y" * 8]},
    ),
    ("max_tokenize_length", "tokens", "/detokenize", {"tokens": [5] * 12}, {"tokens": [5] * 13}),
    ("max_json_depth", "", CHAT, None, turns(1) | {"metadata": deep(8)}),
    ("max_json_values", "", CHAT, turns(1) | {"metadata": [0] * 1900}, turns(1) | {"metadata": [0] * 2100}),
    ("max_stops", "stop", CHAT, turns(1) | {"stop": ["zx", "zy"]}, turns(1) | {"stop": ["zx", "zy", "zz"]}),
    ("max_request_id_length", "session_id", "/open_session", None, {"session_id": "s" * 71}),
]  # fmt: skip

OF_THE_SERVER = ("max_header_bytes", "max_query_fields", "max_request_bytes")
OF_SESSIONS = ("max_sessions", "max_session_tokens", "max_session_turns")


def flag_of(name: str) -> str:
    return facts_of(LimitFields)[name].flag


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    flags = [word for name, value in LIMITS.items() for word in (flag_of(name), str(value))]
    with serving(*SIMULATED, *script("so it is"), "--topology", "inline", "--max-total-tokens", "4000", *flags) as up:
        yield up


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(worker="simulated", max_total_tokens=4000, check_invariants="step", **LIMITS) as up:
        yield up


def test_every_setting_has_a_case() -> None:
    here = {case[0] for case in (*NATIVE, *OPENAI)} | {*OF_THE_SERVER, *OF_SESSIONS}
    assert here | set(ELSEWHERE) == set(LimitFields.model_fields)
    assert set(LIMITS) == here
    assert not here & set(ELSEWHERE)


@pytest.mark.parametrize(("name", "param", "taken", "refused"), NATIVE)
def test_b85_generate(server: Server, name: str, param: str, taken: Body | None, refused: Body) -> None:
    if taken is not None:
        answer = server.post(GEN, taken)
        assert answer.status_code == 200, answer.text
    _refused(server.post(GEN, refused), name, "text" if param == "prompt" else param)


@pytest.mark.parametrize(("name", "param", "route", "taken", "refused"), OPENAI)
def test_b85_openai(server: Server, name: str, param: str, route: str, taken: Body | None, refused: Body) -> None:
    if taken is not None:
        answer = server.post(route, taken)
        assert answer.status_code == 200, answer.text
    _refused(server.post(route, refused), name, param)


def _refused(answer: Any, name: str, param: str, status: int = 400) -> None:
    assert answer.status_code == status, answer.text
    assert len(answer.content) < 1000, "a refusal repeats what was sent"
    error = answer.json()["error"]
    assert (error["param"] or "") == param
    assert flag_of(name) in error["message"]


@pytest.mark.parametrize(("name", "param", "taken", "refused"), NATIVE)
def test_b85_engine(engine: Engine, name: str, param: str, taken: Body | None, refused: Body) -> None:
    def ask(body: Body) -> Any:
        given = dict(body)
        answer = engine.generate(given.pop("text", None), **given)
        return list(answer) if given.get("stream") else answer

    if taken is not None:
        ask(taken)
    with pytest.raises(RequestError) as caught:
        ask(refused)
    assert caught.value.param == param
    assert flag_of(name) in caught.value.message


def test_b85_engines_chat_template(engine: Engine) -> None:
    engine.apply_chat_template(turns(3)["messages"])
    for name, messages in (
        ("max_messages", turns(7)["messages"]),
        ("max_template_steps", turns(5)["messages"]),
        ("max_template_chars", turns(1, "x" * 2000)["messages"]),
    ):
        with pytest.raises(RequestError, match=flag_of(name)):
            engine.apply_chat_template(messages)
    for name, tools in (("max_tools", [tool()] * 3), ("max_schema_bytes", [tool(description="x" * 300)])):
        with pytest.raises(RequestError, match=flag_of(name)):
            engine._runtime.template_manager.encode(turns(1)["messages"], tools=tools)


def test_b85_head_query_and_body(server: Server) -> None:
    assert server.get("/ping", headers={"x-pad": "y" * 2000}).status_code == 200
    _refused(server.get("/ping", headers={"x-pad": "y" * 2900}), "max_header_bytes", "")
    assert server.get("/ping?a=1&b=2&c=3").status_code == 200
    _refused(server.get("/ping?a=1&b=2&c=3&d=4"), "max_query_fields", "")
    _refused(server.post(CMP, {"prompt": "x" * 40_000}), "max_request_bytes", "", 413)
    _refused(server.get("/ping", headers={"x-request-id": "r" * 71}), "max_request_id_length", "X-Request-Id")


def test_b85_sessions(server: Server) -> None:
    ids = [server.post("/open_session", {}).json() for _ in range(2)]
    _refused(server.post("/open_session", {}), "max_sessions", "", 503)

    def turn(**session: Any) -> Any:
        return server.post(GEN, sampling() | {"session_params": {"id": ids[0], **session}})

    assert turn().status_code == turn().status_code == 200
    _refused(turn(), "max_session_turns", "session_params")
    long = {"input_ids": [5] * 50, "sampling_params": {"max_new_tokens": 1}, "session_params": {"id": ids[1]}}
    _refused(server.post(GEN, long), "max_session_tokens", "session_params")
    for one in ids:
        assert server.post("/close_session", {"session_id": one}).json() == {"closed": True}
