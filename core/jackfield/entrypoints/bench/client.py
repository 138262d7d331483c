"""Sends requests when they are due, and stamps what comes back. Reads nothing of it: that is done when the last stream has ended,
so that the client takes as little as can be from a server on the same machine, and keeps up with many streams.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import httpx

from jackfield import __version__
from jackfield.entrypoints.bench.streams import Heard

CONNECT_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request that is ready to be sent. wanted: new tokens; due: seconds after the start, None in a closed loop."""

    body: bytes
    wanted: int
    due: float | None


def new_http(base_url: str, headers: Mapping[str, str], timeout: float) -> httpx.AsyncClient:
    """timeout: the longest silence, in seconds."""
    return httpx.AsyncClient(
        base_url=base_url,
        headers={
            "user-agent": f"jackfield-bench/{__version__}",
            "content-type": "application/json",
            "accept-encoding": "identity",  # compressed, chunks would come when the compressor likes
            **headers,
        },
        timeout=httpx.Timeout(timeout, connect=CONNECT_SECONDS, pool=None),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        trust_env=False,  # no proxy of the environment between a client and what it measures
    )


async def closed_loop(
    http: httpx.AsyncClient, path: str, calls: Sequence[Call], streams: int, ended: Callable[[int], None]
) -> list[Heard]:
    """`streams` requests are open at any time, until all are done. ended: called with how many are."""
    found: list[Heard] = []
    left: Iterator[Call] = iter(calls)

    async def stream() -> None:
        for call in left:
            found.append(await _one(http, path, call, time.perf_counter()))
            ended(len(found))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(streams, len(calls))):
            group.create_task(stream())
    return found


async def open_loop(
    http: httpx.AsyncClient, path: str, calls: Sequence[Call], ended: Callable[[int], None]
) -> list[Heard]:
    """Each is sent when it is due. Times count from then: that the client is late is no excuse for the server, and the
    lateness is told."""
    numbers = count(1)

    async def one(call: Call, due: float) -> Heard:
        heard = await _one(http, path, call, due)
        ended(next(numbers))
        return heard

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = []
        for call in calls:
            due = began + (call.due or 0.0)
            if (left := due - time.perf_counter()) > 0:
                await asyncio.sleep(left)
            tasks.append(group.create_task(one(call, due)))
    return [task.result() for task in tasks]


async def _one(http: httpx.AsyncClient, path: str, call: Call, due: float) -> Heard:
    clock = time.perf_counter
    heard = Heard(due=due, sent=clock(), wanted=call.wanted)
    pieces = heard.pieces
    try:
        async with http.stream("POST", path, content=call.body) as answer:
            heard.status = answer.status_code
            async for data in answer.aiter_raw():
                pieces.append((clock(), data))
    except httpx.ConnectError as error:
        heard.failure = ("no connection", _text(error))
    except httpx.TimeoutException as error:
        heard.failure = ("timeout", _text(error))
    except httpx.HTTPError as error:
        heard.failure = ("broken off" if heard.pieces else "no answer", _text(error))
    heard.ended = clock()
    return heard


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
