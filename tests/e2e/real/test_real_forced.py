"""Texts that a grammar makes the embedded model write, on a real server: characters of many tokens (B01), stops (B04 B06 B13),
what is refused (B11 B20 B30 B68 B85), log-probabilities (B26), constants (B73), the grammar compiler (B71), names (B84)."""

from __future__ import annotations

import json
import math
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from tests.e2e.http.servers import Server, events, until
from tests.e2e.http.test_http_tools import flat
from tests.e2e.real.test_real_chat import CHAT, HELLO, both, force, post, refused

pytestmark = pytest.mark.model

CMP, GEN = "/v1/completions", "/generate"


def test_b01_a_character_of_many_tokens_is_never_told_in_parts(real: Server) -> None:
    text = "\U0001f600\U0001f468\u200d\U0001f469\u6f22\u5b57 \ufffd."

    def deltas(interval: int) -> list[str]:
        found = events(post(real, **force(text), stream_interval=interval, stream=True))
        return [chunk["choices"][0]["delta"].get("content", "") for chunk in found]

    with ThreadPoolExecutor(2) as beside:
        for parts in beside.map(deltas, (1, 4)):
            assert "".join(parts) == text, "one replacement mark, which the model wrote, and no other"


def test_b04_nothing_of_a_stop_text_is_told(real: Server) -> None:
    stop = ["nothing", "FGHIJ", "HIJK"]
    found = both(real, **force("DEFGHIJK"), stop=stop)
    assert (found["content"], found["finish_reason"]) == ("DE", "stop")
    last = events(post(real, **force("DEFGHIJK"), stop=stop, stream=True))[-1]["choices"][0]
    assert (last["finish_reason"], last["matched_stop"]) == ("stop", "FGHIJ")


def test_b06_an_empty_stop_text_is_refused_and_none_stops_nothing(real: Server) -> None:
    for stop in ("", ["", "X"]):
        refused(real, "stop", stop=stop)
    for nothing in ([], None):
        assert flat(post(real, **force("abc"), stop=nothing).json())["content"] == "abc"


def test_b13_an_end_token_is_no_text_and_cuts_none(real: Server) -> None:
    ends = {"regex": "Yes\\.( or no)?", "logit_bias": {"2": 100}}  # where it may end, it does
    for more, shown in (
        ({"stop_token_ids": [2], "skip_special_tokens": False}, ""),
        ({"no_stop_trim": True}, ""),
        ({"no_stop_trim": True, "skip_special_tokens": False}, "<|im_end|>"),
    ):
        found = both(real, **ends, **more)
        assert (found["content"], found["finish_reason"]) == ("Yes." + shown, "stop"), more
    (choice,) = post(real, **ends).json()["choices"]
    assert (choice["message"]["content"], choice["matched_stop"]) == ("Yes.", 2)


def test_b11_b20_b30_what_cannot_run_is_refused_before_the_first_byte(real: Server) -> None:
    long = {"prompt": [7] * 9000, "max_tokens": 1}
    for stream in (False, True):
        for route, body, status, param, code in (
            (CMP, long, 400, "prompt", "context_length_exceeded"),
            (CMP, {"prompt": [7] * 4097, "max_tokens": 1}, 400, "prompt", None),
            (GEN, {"input_ids": [7] * 9000}, 400, "input_ids", "context_length_exceeded"),
            (CHAT, {"messages": [{"role": "nobody", "content": "x"}]}, 400, "messages[0].role", None),
            (CHAT, {"messages": HELLO, "model": "nobody"}, 404, "model", "model_not_found"),
            ("/v1/nowhere", {}, 404, None, "unknown_route"),
        ):
            answer = real.post(route, {**body, "stream": stream})
            assert answer.status_code == status, answer.text
            assert answer.headers["content-type"] == "application/json"
            error = answer.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert error["param"] == param
            assert code in (None, error["code"])
    assert (
        post(real, **force("abcdef"), max_tokens=9, max_completion_tokens=1).json()["usage"]["completion_tokens"] == 1
    )
    real.assert_alive()


def test_b26_values_are_the_models_whatever_the_temperature(real: Server) -> None:
    asked = {"logprobs": True, "top_logprobs": 5, "max_tokens": 4}
    greedy = post(real, **asked).json()["choices"][0]["logprobs"]["content"]
    drawn = post(real, **asked, temperature=1, top_k=1).json()["choices"][0]["logprobs"]["content"]
    for row, other in zip(greedy, drawn, strict=True):
        values = [one["logprob"] for one in row["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert values == pytest.approx([one["logprob"] for one in other["top_logprobs"]], abs=1e-3)
        assert 0.2 < sum(math.exp(value) for value in values) < 1
    assert any(row["logprob"] < -0.01 for row in greedy)


def schema_of(value: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": value, "strict": True}}


def test_b73_a_constant_is_written_as_it_is(real: Server) -> None:
    value = {"\u540d \u00e9": "\u6f22\U0001f600", "b": 'a"\\', "c": None}
    schema = {
        "type": "object",
        "properties": {key: {"const": one} if key == "b" else {"enum": [one]} for key, one in value.items()},
        "required": list(value),
        "additionalProperties": False,
    }
    asked = json.loads(json.dumps(schema_of(schema), ensure_ascii=True))
    assert json.loads(flat(post(real, response_format=asked).json())["content"]) == value


def test_b68_b85_what_is_malformed_or_too_much_is_refused_with_its_place(real: Server) -> None:
    def tool(parameters: Any) -> list[Any]:
        return [{"type": "function", "function": {"name": "f", "parameters": parameters, "strict": True}}]

    pattern = {"type": "object", "properties": {"a": {"type": "string", "pattern": "["}}}
    for choice in ("required", "auto"):
        error = refused(real, "tools", tools=tool(pattern), tool_choice=choice)
        assert "pattern" in error["message"]
    large = {"type": "object", "description": "x" * 2**20}
    refused(real, "response_format", response_format=schema_of(large))
    for param, more in (
        ("n", {"n": 10**9}),
        ("top_logprobs", {"logprobs": True, "top_logprobs": 10**6}),
        ("stop", {"stop": [str(i) for i in range(10_000)]}),
        ("logit_bias", {"logit_bias": {str(i): 1 for i in range(40_000)}}),
    ):
        refused(real, param, **more)
    assert real.post(CMP, {"prompt": "a", "best_of": 10**9}).status_code == 400
    assert real.post(CHAT, {"messages": HELLO}, headers={"x-request-id": "x" * 2**20}).status_code in (400, 431)
    real.assert_alive()


def compiler_of(server: Server) -> psutil.Process:
    family = psutil.Process(server.process.pid).children(recursive=True)
    return next(one for one in family if "jackfield.managers.grammar.child" in one.cmdline())


def test_b71_clients_that_leave_while_their_grammar_compiles_leave_nothing(real: Server) -> None:
    """The compiler is stopped meanwhile, so that none of them can be ready."""
    compiler = compiler_of(real)
    compiler.send_signal(signal.SIGSTOP)
    try:
        with real.client() as client, ThreadPoolExecutor(3) as beside:
            bodies = [{"text": "x", "rid": f"b71-{i}", "sampling_params": {"regex": f"b71{i}"}} for i in range(3)]
            waiting = [beside.submit(real.post, GEN, body) for body in bodies]
            until(lambda: real.scheduler()[1] == 3)
            assert client.post(CHAT, json={"messages": HELLO, "max_tokens": 1}).status_code == 200  # others go on
            for body in bodies:
                assert client.post("/abort_request", json={"rid": body["rid"]}).json()["aborted"] == 1
            for answer in waiting:
                assert answer.result().json()["meta_info"]["finish_reason"]["type"] == "abort"
        until(lambda: real.scheduler() == (0, 0))
    finally:
        compiler.send_signal(signal.SIGCONT)
    assert flat(post(real, **force("after b71")).json())["content"] == "after b71"


def test_b71_a_grammar_that_ends_with_its_last_token(real: Server) -> None:
    """Its end is an end, and no cut: no token of it need follow."""
    told = post(real, **force("so on")).json()
    whole, usage = flat(told), told["usage"]
    assert (whole["content"], whole["finish_reason"]) == ("so on", "stop")
    for limit in (usage["completion_tokens"] - 1, usage["completion_tokens"]):
        found = both(real, **force("so on"), max_tokens=limit)
        assert (found["content"] == "so on") is (limit == usage["completion_tokens"])
        assert found["finish_reason"] == ("stop" if found["content"] == "so on" else "length")


def test_b84_a_name_of_a_client_is_no_path(real: Server) -> None:
    with real.client() as client:
        for name in ("../x", "/etc/passwd", "a/../../x", "a\x00b", "..%2f..%2fetc%2fpasswd"):
            unknown = client.post(CHAT, json={"messages": HELLO, "model": name})
            assert unknown.json()["error"]["code"] == "model_not_found"
            refusal = client.post(GEN, json={"text": "a", "lora_path": name})
            assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, "lora_path")
            for route in ("/v1/models/", "/playground/", "/v1/responses/"):
                answer = client.get(route + name.replace("/", "%2f").replace("\x00", "%00"))
                assert answer.status_code in (400, 404)
                assert "root:" not in answer.text
