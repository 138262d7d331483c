"""The table of abort outcomes, row by row: wherever a request is and whoever ends it, its client sees one result, and nothing
of it is left. Rows 3 (grammars) and 7 (disaggregation) wait for what they are about.

Beside it, the table of limits: each refusal has its status and the numbers in it (B38 B42 B44).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.e2e.http.servers import DEADLINE, LONG, PLAIN, SIMULATED, SLOW, Server, events, raw_events, serving, until

PROMPT = list(range(100, 500))
FLAGS = (
    *SIMULATED,
    *SLOW,
    "--max-running-requests",
    "2",
    "--max-queued-requests",
    "1",
    "--max-total-tokens",
    "4096",
    "--chunked-prefill-size",
    "4",
    "--page-size",
    "2",
)


@pytest.fixture(scope="module", params=["processes", "inline"])
def slow(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A step takes 20 ms and computes 4 tokens of a prompt."""
    with serving(*FLAGS, "--topology", request.param) as server:
        yield server


SAMPLING = {**LONG, "max_new_tokens": 1000}


def long_body(stream: bool, **more: Any) -> dict[str, Any]:
    return {"input_ids": [5, 6, 7], "sampling_params": SAMPLING, "stream": stream, **more}


@contextmanager
def clients(server: Server) -> Iterator[Callable[[dict[str, Any]], Future[httpx.Response]]]:
    """Posts to /generate on threads; whatever still runs in the end is aborted."""
    pool = ThreadPoolExecutor(8)
    try:
        yield lambda body: pool.submit(server.post, "/generate", body)
    finally:
        server.post("/abort_request", {"abort_all": True})
        pool.shutdown()


def result(response: httpx.Response, stream: bool) -> dict[str, Any]:
    """The one answer of a request that ended without an error."""
    assert response.status_code == 200, response.text
    if not stream:
        answer: dict[str, Any] = response.json()
        return answer
    told = events(response)
    assert [event["meta_info"]["finish_reason"] is not None for event in told].count(True) == 1
    last: dict[str, Any] = told[-1]
    return last


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The one error of a request that ended with one before anything was sent."""
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = response.json()["error"]
    return error


def fill(server: Server, post: Callable[[dict[str, Any]], Future[httpx.Response]]) -> None:
    """Two run, so that the next one waits. One after the other: together they would overflow a queue of one."""
    for count in (1, 2):
        post(long_body(False, rid=f"hold-{count}"))
        until(lambda count=count: server.scheduler() == (count, 0))  # type: ignore[misc]


both = pytest.mark.parametrize("stream", [False, True])


@both
@pytest.mark.parametrize(
    ("wrong", "param"),
    [({"input_ids": []}, "input_ids"), ({"input_ids": [-1]}, "input_ids"), ({"sampling_params": {"n": 0}}, None)],
)
def test_row_1_refused_before_it_is_sent_on(
    slow: Server, stream: bool, wrong: dict[str, Any], param: str | None
) -> None:
    response = slow.post("/generate", long_body(stream) | wrong)
    assert response.status_code == 400
    if param is not None:
        assert error_of(response)["param"] == param
    assert slow.scheduler() == (0, 0)
    slow.assert_alive()


@both
def test_row_2_aborted_while_it_waits(slow: Server, stream: bool) -> None:
    with clients(slow) as post:
        fill(slow, post)
        waiting = post(long_body(stream, rid="wait"))
        until(lambda: slow.scheduler() == (2, 1))
        assert slow.post("/abort_request", {"rid": "wait"}).json() == {"aborted": 1}
        answer = result(waiting.result(DEADLINE), stream)
        assert answer["meta_info"]["finish_reason"]["type"] == "abort"
        assert answer["meta_info"]["completion_tokens"] == 0
        assert slow.scheduler() == (2, 0)
    slow.assert_alive()


@both
def test_row_2_the_queue_is_full(slow: Server, stream: bool) -> None:
    with clients(slow) as post:
        fill(slow, post)
        post(long_body(False))
        until(lambda: slow.scheduler() == (2, 1))
        refused = slow.post("/generate", long_body(stream))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert error_of(refused)["code"] == "queue_full"
        assert "1 requests wait" in error_of(refused)["message"]
        assert slow.scheduler() == (2, 1)
    slow.assert_alive()


@both
def test_row_2_a_timeout_while_it_waits(stream: bool) -> None:
    with serving(*FLAGS, "--request-waiting-timeout", "0.5", "--topology", "inline") as server, clients(server) as post:
        fill(server, post)
        refused = post(long_body(stream)).result(DEADLINE)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert error_of(refused)["code"] == "request_waiting_timeout"
        assert "the limit is 0.5 s" in error_of(refused)["message"]
        assert server.scheduler() == (2, 0)


@both
def test_row_4_aborted_between_two_chunks(slow: Server, stream: bool) -> None:
    prompt = [1000 + stream, *PROMPT]
    with clients(slow) as post:
        chunks = post(long_body(stream, rid="chunks") | {"input_ids": prompt})
        until(lambda: slow.state()["kv"]["protected"] >= 8)  # two chunks are done, of a hundred
        assert slow.post("/abort_request", {"rid": "chunks"}).json() == {"aborted": 1}
        answer = result(chunks.result(DEADLINE), stream)
    assert answer["meta_info"]["finish_reason"]["type"] == "abort"
    assert answer["meta_info"]["completion_tokens"] == 0
    slow.assert_alive()
    again = slow.generate(input_ids=prompt[:8], sampling_params={"max_new_tokens": 1, "temperature": 0})
    assert again["meta_info"]["cached_tokens"] == 6  # the finished chunks stay in the cache; the last token is computed


@both
def test_row_4_the_client_goes_between_two_chunks(slow: Server, stream: bool) -> None:
    prompt = [1100 + stream, *PROMPT]

    async def leave() -> None:
        async with slow.async_client() as client:
            body = long_body(stream, rid="gone") | {"input_ids": prompt}
            request = asyncio.create_task(client.post("/generate", json=body))
            await asyncio.to_thread(until, lambda: slow.state()["kv"]["protected"] >= 8)
            request.cancel()
            await asyncio.wait([request])

    asyncio.run(leave())
    until(lambda: slow.scheduler() == (0, 0))
    assert slow.state()["kv"]["evictable"] < len(prompt)  # it did not go on to the end
    slow.assert_alive()


@both
def test_row_5_aborted_while_it_runs(slow: Server, stream: bool) -> None:
    with clients(slow) as post:
        running = post(long_body(stream, rid="run"))
        until(lambda: slow.state()["kv"]["held"] >= 4)
        assert slow.post("/abort_request", {"rid": "run", "abort_message": "enough"}).json() == {"aborted": 1}
        answer = result(running.result(DEADLINE), stream)
    assert answer["meta_info"]["finish_reason"] == {"type": "abort", "message": "enough"}
    assert answer["meta_info"]["completion_tokens"] == len(answer["output_ids"]) > 0
    slow.assert_alive()


@both
def test_row_5_a_timeout_while_it_runs(stream: bool) -> None:
    """What was streamed stays with the client; the error is the last event, and no [DONE] calls the answer complete."""
    with serving(*FLAGS, "--request-running-timeout", "0.5", "--topology", "inline") as server, clients(server) as post:
        ended = post(long_body(stream)).result(DEADLINE)
        if stream:
            assert ended.status_code == 200
            *told, last = raw_events(ended.text)
            assert told
            assert "[DONE]" not in ended.text
            assert '"code":"request_running_timeout"' in last
        else:
            assert (ended.status_code, ended.headers["retry-after"]) == (503, "1")
            assert error_of(ended)["code"] == "request_running_timeout"
            assert "the limit is 0.5 s" in error_of(ended)["message"]


@both
def test_row_6_aborted_while_it_is_retracted(stream: bool) -> None:
    flags = ("--max-total-tokens", "80", "--schedule-conservativeness", "0.01", "--topology", "inline")
    with serving(*FLAGS, *flags) as server, clients(server) as post:
        first = post(long_body(False, rid="first"))
        until(lambda: server.scheduler() == (1, 0))
        second = post(long_body(stream, rid="second"))
        until(lambda: server.scheduler() == (2, 0))
        until(lambda: server.scheduler() == (1, 1))  # the pool is full, and the newest was retracted
        assert server.post("/abort_request", {"rid": "second"}).json() == {"aborted": 1}
        answer = result(second.result(DEADLINE), stream)
        assert answer["meta_info"]["finish_reason"]["type"] == "abort"
        assert answer["meta_info"]["completion_tokens"] == len(answer["output_ids"]) > 0
        assert result(first.result(DEADLINE), False)["meta_info"]["finish_reason"]["type"] == "length"


@both
@pytest.mark.parametrize("waits", [False, True])
def test_rows_8_and_9_the_client_goes(slow: Server, stream: bool, waits: bool) -> None:
    before = (2, 1) if waits else (1, 0)

    async def leave() -> None:
        async with slow.async_client() as client:
            request = asyncio.create_task(client.post("/generate", json=long_body(stream, rid="gone")))
            await asyncio.to_thread(until, lambda: slow.scheduler() == before)
            request.cancel()
            await asyncio.wait([request])

    with clients(slow) as post:
        if waits:
            fill(slow, post)
        asyncio.run(leave())
        until(lambda: slow.scheduler() == (before[0] if waits else 0, 0))
        assert slow.post("/abort_request", {"rid": "gone"}).json() == {"aborted": 0}
    slow.assert_alive()


def test_an_abort_of_an_id_that_is_unknown_or_over_changes_nothing(slow: Server) -> None:
    slow.generate(input_ids=[5], rid="over", sampling_params={"max_new_tokens": 1})
    for rid in ("over", "never"):
        assert slow.post("/abort_request", {"rid": rid}).json() == {"aborted": 0}
    slow.assert_alive()


@pytest.mark.parametrize("topology", ["processes", "inline"])
def test_b38_forty_clients_and_room_for_four(topology: str) -> None:
    flags = (*SIMULATED, *SLOW, "--max-running-requests", "2", "--max-queued-requests", "2", "--topology", topology)

    async def ask(client: httpx.AsyncClient, i: int) -> httpx.Response:
        sampling = {"max_new_tokens": 3, "temperature": 0, "ignore_eos": True}
        return await client.post(
            "/generate", json={"input_ids": [i + 5], "sampling_params": sampling, "stream": i % 2 == 1}
        )

    async def crowd(url: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=url, **PLAIN) as client:
            return await asyncio.gather(*(ask(client, i) for i in range(40)))

    with serving(*flags, "--metrics", "prometheus") as server:
        answers = asyncio.run(crowd(server.url))
        served = 0
        for i, answer in enumerate(answers):
            if answer.status_code == 200:
                served += 1
                last = result(answer, i % 2 == 1)
                assert last["meta_info"]["finish_reason"]["type"] == "length"
            else:
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
                assert "2 requests wait" in error_of(answer)["message"]
        assert served >= 4
        shown = server.get("/metrics").text
        counted = {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in shown.splitlines()
            if line.startswith("jackfield_http_requests_total") and "/generate" in line
        }
        by_status = {code: sum(n for name, n in counted.items() if f'"{code}"' in name) for code in (200, 503)}
        assert by_status == {200: served, 503: 40 - served}


LIMITS = (
    "--context-length",
    "64",
    "--max-request-bytes",
    "2000",
    "--max-json-depth",
    "8",
    "--max-request-id-length",
    "64",
    "--max-prompts-per-request",
    "3",
    "--max-messages",
    "2",
    "--max-header-bytes",
    "4000",
)
MESSAGE = {"role": "user", "content": "x"}


@pytest.fixture(scope="module")
def limited() -> Iterator[Server]:
    with serving(*SIMULATED, *LIMITS, "--topology", "inline") as server:
        yield server


@pytest.mark.parametrize(
    ("path", "body", "status", "numbers"),
    [
        ("/generate", {"input_ids": [5] * 65}, 400, ("65", "64")),
        ("/generate", {"text": "x " * 300}, 400, ("64",)),
        ("/generate", {"input_ids": [[5], [6], [7], [8]]}, 400, ("4", "3")),
        ("/v1/completions", {"prompt": ["a", "b", "c", "d"]}, 400, ("4", "3")),
        ("/v1/chat/completions", {"messages": [MESSAGE] * 3}, 400, ("3", "2")),
        ("/generate", {"text": "x" * 3000}, 413, ("2000",)),
        ("/generate", {"text": "x", "rid": "r" * 65}, 400, ("65", "64")),
        ("/generate", {"text": "x", "sampling_params": {"max_new_tokens": -1}}, 400, ("-1",)),
        ("/generate", {"text": "x", "sampling_params": {"temperature": -1}}, 400, ("-1",)),
        ("/generate", {"input_ids": [10**6]}, 400, ("1000000",)),
        ("/generate", {"text": [[[[[[[[[[]]]]]]]]]]}, 400, ("8",)),
    ],
)
def test_each_limit_of_a_request_is_told_with_its_numbers(
    limited: Server, path: str, body: dict[str, Any], status: int, numbers: tuple[str, ...]
) -> None:
    refused = limited.post(path, body)
    assert refused.status_code == status, refused.text
    message = error_of(refused)["message"]
    assert all(number in message for number in numbers), message


def test_the_head_and_the_label_have_their_limits_too(limited: Server) -> None:
    for headers, number in (({"X-Request-Id": "x" * 65}, "64"), ({"X-Long": "x" * 5000}, "4000")):
        refused = limited.post("/generate", {"text": "x"}, headers=headers)
        assert refused.status_code == 400
        assert number in error_of(refused)["message"]


def test_requests_at_once_have_a_limit() -> None:
    with (
        serving(*SIMULATED, *SLOW, "--max-concurrent-requests", "1", "--topology", "inline") as server,
        clients(server) as post,
    ):
        post(long_body(False))
        until(lambda: server.scheduler() == (1, 0))
        refused = server.post("/generate", long_body(False))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert error_of(refused)["code"] == "too_many_requests"
        assert "1 requests" in error_of(refused)["message"]
