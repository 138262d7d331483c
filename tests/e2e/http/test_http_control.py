"""Requests that end early: aborted, disconnected, repeated, and a cache that is flushed (B42 B44 B46 B47 B60)."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from jackfield.entrypoints.http.service import CONTROL_THREADS, TOKENIZER_THREADS
from tests.e2e.http.servers import DEADLINE, LONG, PLAIN, SIMULATED, SLOW, Server, events, serving, until

CHAT = "/v1/chat/completions"
CMP = "/v1/completions"


@pytest.fixture(scope="module", params=["processes", "inline"])
def slow(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Two run at once; each step takes 20 ms."""
    with serving(*SIMULATED, *SLOW, "--max-running-requests", "2", "--topology", request.param) as server:
        yield server


def long_request(**more: Any) -> dict[str, Any]:
    return {"input_ids": [5, 6, 7], "sampling_params": LONG, **more}


class Background:
    """Requests that wait for their answers on threads."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.pool = ThreadPoolExecutor(8)

    def generate(self, **more: Any) -> Any:
        return self.pool.submit(self.server.post, "/generate", long_request(**more))

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.post("/abort_request", {"abort_all": True})
        self.pool.shutdown()


def test_b42_abort_a_request_that_runs_and_one_that_waits(slow: Server) -> None:
    with Background(slow) as background:
        running = [background.generate(rid=f"run-{i}") for i in range(2)]
        until(lambda: slow.scheduler() == (2, 0))
        waiting = background.generate(rid="wait")
        until(lambda: slow.scheduler() == (2, 1))
        for rid, future in [("wait", waiting), ("run-1", running[1]), ("run-0", running[0])]:
            assert slow.post("/abort_request", {"rid": rid, "abort_message": "enough"}).json() == {"aborted": 1}
            answer = future.result(DEADLINE)
            assert answer.status_code == 200
            assert answer.json()["meta_info"]["finish_reason"] == {"type": "abort", "message": "enough"}
    assert slow.post("/abort_request", {"rid": "run-0"}).json() == {"aborted": 0}
    slow.assert_alive()


def test_b42_abort_all_ends_streams_too(slow: Server) -> None:
    with ThreadPoolExecutor(3) as pool:
        native = pool.submit(slow.post, "/generate", long_request(stream=True))
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4000, "ignore_eos": True, "stream": True}
        chat = pool.submit(slow.post, CHAT, body)
        third = pool.submit(slow.post, CMP, {"prompt": "x", "max_tokens": 4000, "ignore_eos": True, "stream": True})
        until(lambda: slow.scheduler() == (2, 1))
        assert slow.post("/abort_request", {"abort_all": True}).json() == {"aborted": 3}
        assert events(native.result(DEADLINE))[-1]["meta_info"]["finish_reason"]["type"] == "abort"
        for future in (chat, third):
            assert events(future.result(DEADLINE))[-1]["choices"][0]["finish_reason"] == "abort"
    slow.assert_alive()


def test_an_openai_answer_is_aborted_by_its_id(slow: Server) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with slow.client() as client, client.stream("POST", CHAT, json=body) as response:
        lines = response.iter_lines()

        head = json.loads(next(lines).removeprefix("data: "))
        assert slow.post("/abort_request", {"rid": head["id"]}).json() == {"aborted": 1}
        assert any('"finish_reason":"abort"' in line for line in lines)


@pytest.mark.parametrize("body", [{}, {"rid": "x", "abort_all": True}, {"abort_all": False}, {"rid": 5}, {"id": "x"}])
def test_an_abort_says_what(slow: Server, body: dict[str, Any]) -> None:
    assert slow.post("/abort_request", body).status_code == 400


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("route", ["/generate", CMP, CHAT])
def test_b44_a_client_that_goes_ends_its_request(slow: Server, route: str, stream: bool) -> None:
    openai = {"max_tokens": 4000, "ignore_eos": True, "stream": stream}
    body = {
        "/generate": long_request(stream=stream),
        CMP: {"prompt": ["x", "y"], **openai},
        CHAT: {"messages": [{"role": "user", "content": "x"}], **openai},
    }[route]

    async def leave_when_it_runs() -> None:
        async with slow.async_client() as client:
            request = asyncio.create_task(client.post(route, json=body))
            await asyncio.to_thread(until, lambda: slow.scheduler()[0] > 0)
            request.cancel()
            await asyncio.wait([request])

    asyncio.run(leave_when_it_runs())
    until(lambda: slow.scheduler() == (0, 0))
    slow.assert_alive()


def test_b44_a_client_that_goes_while_its_request_waits(slow: Server) -> None:
    with Background(slow) as background:
        for i in range(2):
            background.generate(rid=f"hold-{i}")
        until(lambda: slow.scheduler() == (2, 0))

        async def leave_when_it_waits() -> None:
            async with slow.async_client() as client:
                request = asyncio.create_task(client.post("/generate", json=long_request(stream=True)))
                await asyncio.to_thread(until, lambda: slow.scheduler() == (2, 1))
                request.cancel()
                await asyncio.wait([request])

        asyncio.run(leave_when_it_waits())
        until(lambda: slow.scheduler() == (2, 0))
    slow.assert_alive()


def test_b46_a_rid_that_is_live_is_refused_and_the_first_is_unharmed(slow: Server) -> None:
    with Background(slow) as background:
        first = background.generate(rid="same")
        until(lambda: slow.scheduler()[0] == 1)
        for stream in (False, True):
            refused = slow.post("/generate", long_request(rid="same", stream=stream))
            assert refused.status_code == 400
            assert refused.json()["error"]["param"] == "rid"
        assert slow.scheduler() == (1, 0)
        assert not first.done()
        slow.post("/abort_request", {"rid": "same"})
        assert first.result(DEADLINE).json()["meta_info"]["id"] == "same"
    # Once it has ended, the id is free.
    slow.generate(input_ids=[5], sampling_params={"max_new_tokens": 1}, rid="same")


@pytest.mark.parametrize("stream", [False, True])
def test_b46_one_id_twice_in_a_batch(slow: Server, stream: bool) -> None:
    refused = slow.post("/generate", {"input_ids": [[5], [6]], "rid": ["same", "same"], "stream": stream})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "rid"
    slow.assert_alive()


def test_b46_the_head_s_id_is_a_label_and_may_repeat(slow: Server) -> None:
    """Two clients with one X-Request-Id at a time: two answers under ids of the server's, and the label in both heads."""
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 20, "ignore_eos": True}
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(slow.post, CHAT, body, headers={"X-Request-Id": "mine"}) for _ in range(2)]
        until(lambda: slow.scheduler() == (2, 0))
        answers = [future.result(DEADLINE) for future in both]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [answer.headers["x-request-id"] for answer in answers] == ["mine", "mine"]
    assert len({answer.json()["id"] for answer in answers}) == 2
    assert [answer.json()["usage"]["completion_tokens"] for answer in answers] == [20, 20]


@pytest.mark.parametrize("loop", ["normal", "overlap"])
@pytest.mark.parametrize("topology", ["processes", "inline"])
def test_b60_whoever_has_the_answer_may_flush_at_once(topology: str, loop: str) -> None:
    """Also while steps that compute the surplus of requests that have ended are in flight."""
    with serving(*SIMULATED, "--topology", topology, "--event-loop", loop) as server, server.client() as client:
        for number in range(20):
            sampling = {"max_new_tokens": 1 + number % 4, "ignore_eos": True}
            client.post("/generate", json={"input_ids": [number, *range(5, 25)], "sampling_params": sampling})
            assert client.post("/flush_cache").json()["success"] is True
            assert client.get("/server_info").json()["kv"]["evictable"] == 0


def test_b60_not_while_somebody_waits_for_the_answer_of_another(slow: Server) -> None:
    with Background(slow) as background:
        for i in range(3):
            background.generate(rid=f"flush-{i}")
        until(lambda: slow.scheduler() == (2, 1))
        told = slow.post("/flush_cache", None).json()["error"]["message"]
        assert "2 requests run, 1 wait" in told
        assert slow.scheduler() == (2, 1)


def test_b60_the_cache_is_flushed_only_when_nothing_runs(slow: Server) -> None:
    prompt = list(range(100, 200))
    short = {"max_new_tokens": 1, "temperature": 0}
    slow.generate(input_ids=prompt, sampling_params=short)
    assert slow.generate(input_ids=prompt, sampling_params=short)["meta_info"]["cached_tokens"] > 90
    with Background(slow) as background:
        busy = background.generate(rid="busy")
        until(lambda: slow.scheduler() == (1, 0))
        for path in ("/flush_cache", "/flush_cache?timeout=0.01"):
            refused = slow.post(path, None)
            assert refused.status_code == 400
            assert refused.json()["error"]["code"] == "not_idle"
        assert slow.generate(input_ids=prompt, sampling_params=short)["meta_info"]["cached_tokens"] > 90
        # With time to wait, it is flushed when the last request has ended, and not before.
        deferred = background.pool.submit(slow.post, "/flush_cache?timeout=100", None)
        until(lambda: "already in progress" in slow.post("/flush_cache", None).json()["error"]["message"])
        assert not deferred.done()
        slow.post("/abort_request", {"rid": "busy"})
        assert deferred.result(DEADLINE).json()["success"] is True
        assert busy.result(DEADLINE).status_code == 200
    assert slow.generate(input_ids=prompt, sampling_params=short)["meta_info"]["cached_tokens"] == 0
    assert slow.get("/flush_cache").status_code == 200
    assert slow.post("/flush_cache", None, headers={"Origin": slow.url}).status_code == 200
    for header in ({"Origin": "http://page.example"}, {"Referer": "http://page.example/"}, {"Sec-Fetch-Site": "none"}):
        with slow.client() as client:
            for method in ("GET", "HEAD"):
                refused = client.request(method, "/flush_cache", headers=header)
                assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    for header in ({"Origin": "http://page.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert slow.post("/flush_cache", None, headers=header).json()["error"]["code"] == "cross_site"
    for bad in ("-1", "x", "nan", "1e9"):
        assert slow.get(f"/flush_cache?timeout={bad}").json()["error"]["param"] == "timeout"
        assert slow.get(f"/flush_cache?timeout={bad}").status_code == 400


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["processes", "inline"])
def test_b47_streams_that_are_closed_at_random_times_leave_nothing(topology: str) -> None:
    """200 clients, three rounds; some read to the end."""
    flags = ("--option", "worker.simulated.realtime=true", "--option", "worker.simulated.base_us=1000")
    choose = random.Random(47)

    async def one(client: httpx.AsyncClient, read: int | None) -> None:
        body = {
            "messages": [{"role": "user", "content": f"{read}"}],
            "max_tokens": 12,
            "ignore_eos": True,
            "stream": True,
        }
        async with client.stream("POST", CHAT, json=body) as response:
            assert response.status_code == 200
            count = 0
            async for line in response.aiter_lines():
                if count == read:
                    return
                count += bool(line)
            assert line == "" or line == "data: [DONE]"

    async def round_of_clients(url: str) -> None:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(base_url=url, limits=limits, **PLAIN) as client:
            reads = [choose.choice((None, 0, 1, 2, 5, 9)) for _ in range(200)]
            await asyncio.gather(*(one(client, read) for read in reads))

    with serving(*SIMULATED, *flags, "--topology", topology) as server:
        main = psutil.Process(server.process.pid)
        server.assert_alive()
        files, threads = main.num_fds(), main.num_threads()
        for _ in range(3):
            asyncio.run(round_of_clients(server.url))
            server.assert_alive()
            until(lambda: main.num_fds() <= files)
        assert "WARNING" not in server.log  # 400 clients that went are no news
        # Pools of threads fill up to their size, and no further.
        assert main.num_threads() <= threads + TOKENIZER_THREADS + CONTROL_THREADS


def test_a_client_that_does_not_read_holds_up_nobody(slow: Server) -> None:
    """Its answers are held back where it is, and its request ends when it goes, or when its answer is complete."""
    address = urlsplit(slow.url)
    body = json.dumps(long_request(stream=True)).encode()
    head = (
        f"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    with socket.create_connection((address.hostname, address.port), DEADLINE) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(f"{head}\r\n\r\n".encode() + body)
        until(lambda: slow.scheduler() == (1, 0))
        for _ in range(5):
            slow.generate(input_ids=[5], sampling_params={"max_new_tokens": 2})
    until(lambda: slow.scheduler() == (0, 0))
