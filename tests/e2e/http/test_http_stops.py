"""`stop_regex` over HTTP, and the order of precedence of what ends an answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.http.servers import Server, events

CHAT, CMP = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "hello"}]
PATTERN = "[0-9]\\. [A-Z][a-z]{1,20}"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("interval", [1, 3])
def test_a_stop_expression_on_every_route(server: Server, text: str, stream: bool, interval: int) -> None:
    before = text[: text.index("3. Then")]
    more = {"stop_regex": PATTERN, "temperature": 0, "stream": stream}
    for route, body in ((CHAT, {"messages": HELLO}), (CMP, {"prompt": "a", "max_tokens": 50})):
        response = server.post(route, {**body, **more, "stream_interval": interval})
        told = events(response) if stream else [response.json()]
        choices = [choice for answer in told for choice in answer["choices"]]
        shown = "".join(
            choice.get("text") or (choice.get("delta") or choice.get("message") or {}).get("content") or ""
            for choice in choices
        )
        assert shown == before
        assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
    sampling = {"stop_regex": ["nowhere", PATTERN], "temperature": 0, "stream_interval": interval}
    response = server.post("/generate", {"text": "a", "sampling_params": sampling, "stream": stream})
    answer = events(response)[-1] if stream else response.json()
    assert answer["text"] == before
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": PATTERN}
    assert answer["meta_info"]["completion_tokens"] == len(answer["output_ids"])


def test_a_stop_at_the_last_token_goes_before_the_length(server: Server, text: str) -> None:
    whole = server.generate(text="a", sampling_params={"temperature": 0, "stop_regex": "1"})
    cap = whole["meta_info"]["completion_tokens"]
    at_cap = server.generate(text="a", sampling_params={"temperature": 0, "stop": "1", "max_new_tokens": cap})
    assert at_cap["meta_info"]["finish_reason"] == {"type": "stop", "matched": "1"}
    short = server.generate(text="a", sampling_params={"temperature": 0, "stop": "1", "max_new_tokens": cap - 1})
    assert short["meta_info"]["finish_reason"] == {"type": "length", "length": cap - 1}


REFUSED: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": HELLO, "stop_regex": "a+"}),
    (CMP, {"prompt": "a", "stop_regex": ["(a"]}),
    (CMP, {"prompt": "a", "stop_regex": ["x"] * 33}),
    (CMP, {"prompt": "a", "stop_regex": "x" * 257}),
    ("/generate", {"text": "a", "sampling_params": {"stop_regex": "^a"}}),
    ("/generate", {"text": "a", "sampling_params": {"stop_regex": ["(?:(?:(?:a{9}){9}){9}){9}"]}}),
]


@pytest.mark.parametrize(("route", "body"), REFUSED, ids=lambda value: str(value)[:60])
def test_a_pattern_that_is_not_taken_is_a_400(server: Server, route: str, body: dict[str, Any]) -> None:
    for stream in (False, True):
        answer = server.post(route, {**body, "stream": stream})
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == "stop_regex"


def test_null_and_none_are_absent(server: Server, text: str) -> None:
    nothings: tuple[Any, ...] = (None, [])
    for nothing in nothings:
        answer = server.post(CHAT, {"messages": HELLO, "stop_regex": nothing, "temperature": 0}).json()
        assert answer["choices"][0]["message"]["content"] == text
