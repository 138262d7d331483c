"""What the request log holds at each level, and what it never does (B82: keys; and no client may forge a line)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.http.app import App
from jackfield.entrypoints.http.exchange import Exchange, json_response
from jackfield.entrypoints.http.redaction import HIDDEN, Redaction
from jackfield.entrypoints.http.request_log import PARTIAL_CHARS, Ended, RequestLog
from jackfield.entrypoints.http.schemas.native import GenerateBody
from jackfield.entrypoints.http.service import Service
from jackfield.entrypoints.http.sse import EventStream, event
from jackfield.hookspecs import Route
from jackfield.hookspecs import RouteLevel as Level
from jackfield.ipc.messages import FinishReason, SamplingParams, TextOutput
from jackfield.managers.errors import RequestError
from jackfield.managers.requests.req_state import ReqState

KEY, ADMIN = "sk-ordinary-key", "sk-admin-key"


class FakeCall:
    def __init__(self, *states: ReqState) -> None:
        self.states = list(states)

    def read(self, reader: Any) -> Any:
        return reader(self.states)


def answered(text: str, *, label: str = "mine", prompt_tokens: int = 7, index: int = 0) -> ReqState:
    state = ReqState(
        rid="r",
        label=label,
        index=index,
        prompt_tokens=prompt_tokens,
        sampling=SamplingParams(),
        stream=False,
        now=1.0,
    )
    finish = FinishReason(type="stop", matched=2)
    state.take(TextOutput(rid="r", text=text, ids=[5, 6], finish=finish, closed=True, cached_tokens=3), 1.25)
    return state


def log(level: int, form: str = "json", **args: Any) -> RequestLog:
    given = {"api_key": KEY, "admin_api_key": ADMIN, "log_requests_level": level, "log_requests_format": form, **args}
    return RequestLog(ServerArgs(log_requests=True, **given), print)


def ended(**more: Any) -> Ended:
    usual: dict[str, Any] = {
        "call_id": "call-1", "method": "POST", "path": "/generate", "client": "127.0.0.1:5", "route": "/generate",
        "status": 200, "code": None, "duration_s": 0.5, "started_s": 0.25,
    }  # fmt: skip
    return Ended(**{**usual, **more})


BODY = {
    "text": "the secret plan",
    "sampling_params": {"max_new_tokens": 4, "temperature": 0},
    "cache_salt": "pepper",
    "session_params": {"id": "a-session"},
    "stream": False,
}


def line_of(level: int, **more: Any) -> dict[str, Any]:
    body = GenerateBody.model_validate({**BODY, **more})
    told = log(level).line(ended(body=body, calls=[FakeCall(answered("the whole answer"))]))
    found: dict[str, Any] = json.loads(told)
    return found


def test_level_0_is_who_and_what_became_of_it() -> None:
    told = line_of(0)
    assert told.pop("time").endswith("Z")
    assert told == {
        "call_id": "call-1",
        "method": "POST",
        "path": "/generate",
        "route": "/generate",
        "client": "127.0.0.1:5",
        "status": 200,
        "duration_ms": 500.0,
        "started_ms": 250.0,
        "prompt_tokens": 7,
        "cached_tokens": 3,
        "completion_tokens": 2,
        "answers": 1,
        "requests": [
            {
                "id": "mine",
                "prompt_tokens": 7,
                "cached_tokens": 3,
                "completion_tokens": 2,
                "finish": "stop",
                "e2e_ms": 250.0,
            }
        ],
    }


def test_each_level_has_more() -> None:
    parameters, partial, full = (line_of(level) for level in (1, 2, 3))
    assert parameters["parameters"] == {"sampling_params": BODY["sampling_params"], "stream": False}
    assert "secret plan" not in json.dumps(parameters)
    assert "whole answer" not in json.dumps(parameters)
    for told in (partial, full):
        assert told["body"]["text"] == BODY["text"]
        assert told["requests"][0]["text"] == "the whole answer"
    long = "x" * 10_000
    assert len(json.dumps(line_of(2, text=long))) < 2 * PARTIAL_CHARS
    assert line_of(2, text=long)["body"]["text"].startswith("x" * 1000)
    assert line_of(3, text=long)["body"]["text"] == long


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_no_logs_leaves_what_accounting_needs(level: int) -> None:
    told, plain = line_of(level, no_logs=True), line_of(0)
    assert {**told, "time": ""} == {**plain, "time": ""}


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("form", ["json", "text"])
def test_b82_salts_sessions_and_keys_are_in_no_line(level: int, form: str) -> None:
    sampling = {"stop": [KEY], "max_new_tokens": 1}
    body = GenerateBody.model_validate({**BODY, "text": f"my key is {KEY}, hers {ADMIN}", "sampling_params": sampling})
    told = log(level, form).line(
        ended(
            body=body, call_id=KEY, path=f"/v1/models/{ADMIN}", calls=[FakeCall(answered(f"I heard {KEY}", label=KEY))]
        )
    )
    for secret in (KEY, ADMIN, "pepper", "a-session"):
        assert secret not in told
    assert HIDDEN in told


def test_a_key_is_not_left_half_where_a_text_is_cut() -> None:
    for before in range(PARTIAL_CHARS - 2 * len(KEY), PARTIAL_CHARS + 4):
        body = {"text": "x" * before + KEY + "y" * 5000}
        told = log(2).line(ended(body=body))
        assert KEY[:4] not in told, before
    assert KEY[:4] not in log(2).line(ended(body={"text": KEY * 1000}))


@given(text=st.text())
def test_what_a_client_wrote_cannot_end_a_line_or_speak_to_a_terminal(text: str) -> None:
    for form in ("json", "text"):
        told = log(3, form).line(
            ended(
                body={"text": text, "sampling_params": {text: text}}, path="/" + text, calls=[FakeCall(answered(text))]
            )
        )
        assert told.isascii()
        assert told.isprintable()


FORGED = 'x\nrequest time="2020" call_id=forged status=200\r\x1b[2J\u2028 "}'


def test_a_forged_line_is_one_string_in_the_true_one() -> None:
    told = log(3, "text").line(ended(path=FORGED, body={"text": FORGED}))
    assert told.splitlines() == [told]
    assert " call_id=call-1 " in told
    whole = json.loads(log(3).line(ended(path=FORGED, body={"text": FORGED})))
    assert whole["body"]["text"] == FORGED


def test_many_answers_are_summed_and_some_of_them_told() -> None:
    states = [answered("a", index=i, label=f"m-{i}") for i in range(100)]
    told = json.loads(log(0).line(ended(calls=[FakeCall(*states)])))
    assert (told["answers"], told["prompt_tokens"], told["completion_tokens"]) == (100, 700, 200)
    assert len(told["requests"]) == 16


def test_secrets_by_name_are_hidden_at_any_depth_and_in_any_spelling() -> None:
    nested = {"a": [{"Cache_Salt": "s1", "deep": {"x-api-key": "s2", "session_id": None}}]}
    assert Redaction([]).value(nested) == {
        "a": [{"Cache_Salt": HIDDEN, "deep": {"x-api-key": HIDDEN, "session_id": None}}]
    }


# Through the application


async def lines_of(
    capsys: pytest.CaptureFixture[str], handler: Any, *paths: str, headers: Any = None, **args: Any
) -> list[dict[str, Any]]:
    service = Service(ServerArgs(log_requests=True, log_requests_format="json", **args))
    app = App(service, [Route(path="/x", methods=("GET",), level=Level.KEY, handler=handler, summary="")])
    told: list[str] = []
    assert app._log is not None
    app._log._write = told.append
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for path in paths:
            await client.get(path, headers=headers)
    service.close()
    return [json.loads(line) for line in told]


async def test_refused_and_unknown_requests_are_logged_too(capsys: pytest.CaptureFixture[str]) -> None:
    async def handler(exchange: Exchange) -> Any:
        return json_response({})

    denied, missing = await lines_of(capsys, handler, "/x?api_key=sk-query-secret", "/nope", api_key=KEY)
    assert (denied["status"], denied["code"], denied["route"]) == (401, "invalid_api_key", "/x")
    assert "sk-query-secret" not in json.dumps(denied)
    fine, unknown = await lines_of(capsys, handler, "/x", "/nope")
    assert (fine["status"], fine["route"]) == (200, "/x")
    assert fine["duration_ms"] >= fine["started_ms"] >= 0
    assert (unknown["status"], unknown["code"]) == (404, "unknown_route")
    assert missing["status"] == 401


async def test_a_stream_is_logged_once_when_it_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    state = answered("streamed")

    async def chunks() -> AsyncGenerator[bytes, None]:
        yield event({"n": 1})
        yield event({"n": 2})

    async def handler(exchange: Exchange) -> Any:
        exchange.calls.append(FakeCall(state))  # type: ignore[arg-type]
        return EventStream(chunks())

    (told,) = await lines_of(capsys, handler, "/x", headers={"x-request-id": "by-me"})
    assert told["call_id"] == "by-me"
    assert told["requests"][0]["text"] == "streamed"


def test_it_is_off_unless_asked_for() -> None:
    assert RequestLog.of(ServerArgs()) is None
    service = SimpleNamespace(args=ServerArgs())
    assert App(service)._log is None  # type: ignore[arg-type]


async def test_a_stream_that_breaks_off_is_logged_with_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    async def chunks() -> AsyncGenerator[bytes, None]:
        yield event({"n": 1})
        raise RequestError("too hot", code="overheated")

    async def handler(exchange: Exchange) -> Any:
        return EventStream(chunks())

    (told,) = await lines_of(capsys, handler, "/x")
    assert (told["status"], told["code"]) == (200, "overheated")
