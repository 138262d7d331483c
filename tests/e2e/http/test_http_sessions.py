"""`/open_session`, `/close_session` and turns over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jackfield.entrypoints.http.schemas.native import CloseSessionAnswer
from tests.e2e.http.servers import LONG, SIMULATED, SLOW, Server, events, serving, until

FEW = {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def slow() -> Iterator[Server]:
    with serving(*SIMULATED, *SLOW, "--max-total-tokens", "20000", "--max-sessions", "3") as up:
        yield up


def opened(server: Server, **body: Any) -> str:
    answer = server.post("/open_session", body)
    assert answer.status_code == 200, answer.text
    session = answer.json()
    assert isinstance(session, str)
    return session


def error(response: Any, status: int) -> Any:
    assert response.status_code == status, response.text
    return response.json()["error"]


def test_a_conversation(slow: Server) -> None:
    session = opened(slow, capacity_of_str_len=1000)
    first = slow.generate(input_ids=[5] * 50, sampling_params=FEW, session_params={"id": session, "rid": None})
    response = slow.post(
        "/generate",
        {"input_ids": [6], "sampling_params": FEW, "stream": True,
         "session_params": {"id": session, "rid": first["meta_info"]["id"], "offset": -1, "replace": False}},
    )  # fmt: skip
    last = events(response)[-1]
    assert last["meta_info"]["prompt_tokens"] == 55
    assert last["meta_info"]["cached_tokens"] == 53
    answer = slow.post("/close_session", {"session_id": session}).json()
    CloseSessionAnswer.model_validate(answer)
    assert answer == {"closed": True}
    assert error(slow.post("/close_session", {"session_id": session}), 400)["param"] == "session_id"


def test_a_client_that_goes_away_leaves_the_session_as_it_was(slow: Server) -> None:
    session = opened(slow)
    slow.generate(input_ids=[5, 6], sampling_params=FEW, session_params={"id": session})
    body = {"input_ids": [7], "sampling_params": LONG, "stream": True, "session_params": {"id": session}}
    with slow.client() as client, client.stream("POST", "/generate", json=body) as response:
        parts = response.iter_raw()  # once it is collected, the connection closes
        next(parts)
        told = error(slow.post("/generate", {**body, "stream": False}), 400)
        assert told["param"] == "session_params"
        assert "still running" in told["message"]
    answers = []

    def taken() -> bool:
        """The turn ends in the main process a moment after the scheduler has dropped it."""
        answers.append(
            slow.post("/generate", {"input_ids": [7], "sampling_params": FEW, "session_params": {"id": session}})
        )
        return answers[-1].status_code == 200

    until(taken)
    assert answers[-1].json()["meta_info"]["prompt_tokens"] == 7
    slow.post("/close_session", {"session_id": session})


def test_too_many_sessions_are_a_503(slow: Server) -> None:
    made = [opened(slow) for _ in range(3)]
    response = slow.post("/open_session", {})
    assert "--max-sessions" in error(response, 503)["message"]
    assert "retry-after" in response.headers
    for session in made:
        slow.post("/close_session", {"session_id": session})


REFUSED: list[tuple[str, Any, str]] = [
    ("/open_session", {"session_id": 5}, "session_id"),
    ("/open_session", {"capacity_of_str_len": -1}, "capacity_of_str_len"),
    ("/open_session", {"max_tokens": "x"}, "max_tokens"),
    ("/open_session", {"timeout": 0}, "timeout"),
    ("/open_session", {"streaming": True}, "streaming"),
    ("/open_session", {"tokens": 5}, "tokens"),
    ("/close_session", {}, "session_id"),
    ("/close_session", {"session_id": None}, "session_id"),
    ("/close_session", {"session_id": "nobody"}, "session_id"),
    ("/close_session", {"session_id": ["x"]}, "session_id"),
]


@pytest.mark.parametrize(("route", "body", "param"), REFUSED, ids=str)
def test_what_is_refused_names_the_field(slow: Server, route: str, body: Any, param: str) -> None:
    assert error(slow.post(route, body), 400)["param"] == param
