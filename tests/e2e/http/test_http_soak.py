"""Two hundred mixed random requests (times `--soak-factor`) against a real server: valid, invalid, aborted, disconnected at any
point, with flushes and scrapes between them. At the end nothing is left and memory is flat."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx
import psutil
import pytest

from tests.e2e.http.servers import DEADLINE, SIMULATED, Server, serving

pytestmark = [pytest.mark.soak, pytest.mark.slow]

REQUESTS = 200
AT_ONCE = 32
STATUSES = {200, 400, 404, 503}

BAD: list[tuple[str, Any]] = [
    ("/generate", {"input_ids": [10**9]}),
    ("/generate", {"input_ids": []}),
    ("/generate", {"text": "x", "sampling_params": {"n": 3}}),
    ("/generate", {"input_ids": [3] * 400}),
    ("/v1/completions", {"prompt": "x", "temperature": -1}),
    ("/v1/chat/completions", {"messages": []}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "model": "nobody"}),
    ("/nowhere", {}),
]


@pytest.mark.model
@pytest.mark.parametrize("topology", ["processes", "inline"])
async def test_random_requests_leave_nothing_behind(topology: str, soak_factor: int) -> None:
    flags = [
        "--topology",
        topology,
        "--max-total-tokens",
        "2048",
        "--context-length",
        "256",
        "--max-prefill-tokens",
        "64",
    ]
    flags += ["--max-running-requests", "8", "--max-queued-requests", "24", "--metrics", "prometheus"]
    with serving(*SIMULATED, *flags) as server:
        dice = random.Random(topology)
        await asyncio.to_thread(server.generate, input_ids=[3, 4])
        settled = None
        for _ in range(soak_factor):
            await one_round(server, dice)
            await asyncio.to_thread(server.assert_alive)
            settled = settled or footprint(server)
        before, after = settled, footprint(server)
        assert before is not None
        assert after["descriptors"] <= before["descriptors"] + 8, (before, after)
        assert after["threads"] <= before["threads"] + 4, (before, after)
        assert after["resident"] <= before["resident"] * 1.2 + 64 * 2**20, (before, after)


async def one_round(server: Server, dice: random.Random) -> None:
    gate = asyncio.Semaphore(AT_ONCE)
    limits = httpx.Limits(max_connections=AT_ONCE)
    async with httpx.AsyncClient(base_url=server.url, timeout=DEADLINE, trust_env=False, limits=limits) as client:

        async def one(act: float, path: str, body: Any, give_up_after: int | None) -> None:
            async with gate:
                if act < 0.02:
                    await client.post("/flush_cache")
                elif act < 0.05:
                    assert (await client.get("/metrics")).status_code == 200
                elif give_up_after is not None:
                    await read_some(client, path, body, give_up_after)
                else:
                    answer = await client.post(path, json=body)
                    assert answer.status_code in STATUSES, answer.text
                    if answer.status_code != 200:
                        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}

        await asyncio.gather(*(one(dice.random(), *random_request(dice)) for _ in range(REQUESTS)))


async def read_some(client: httpx.AsyncClient, path: str, body: Any, lines: int) -> None:
    """Read a few lines, then hang up."""
    async with client.stream("POST", path, json={**body, "stream": True}) as answer:
        assert answer.status_code in STATUSES
        async for _ in answer.aiter_lines():
            lines -= 1
            if lines <= 0:
                return


def random_request(dice: random.Random) -> tuple[str, Any, int | None]:
    if dice.random() < 0.15:
        return (*dice.choice(BAD), None)
    new_tokens = dice.choice([0, 1, 5, 40, 100])
    give_up_after = dice.choice([None, None, None, 1, 3, 20])
    shared = "the same words again and again " * dice.choice([0, 1, 3])
    text = shared + f"then {dice.randrange(1000)}"
    route = dice.randrange(3)
    if route == 0:
        params = {"max_new_tokens": new_tokens, "temperature": dice.choice([0, 1]), "ignore_eos": dice.random() < 0.7}
        return "/generate", {"text": text, "sampling_params": params}, give_up_after
    if route == 1:
        return "/v1/completions", {"prompt": text, "max_tokens": new_tokens, "seed": dice.randrange(9)}, give_up_after
    messages = [{"role": "user", "content": text}]
    return "/v1/chat/completions", {"messages": messages, "max_tokens": max(1, new_tokens)}, give_up_after


def footprint(server: Server) -> dict[str, int]:
    family = [psutil.Process(server.process.pid)]
    family += family[0].children(recursive=True)
    return {
        "descriptors": sum(process.num_fds() for process in family),
        "threads": sum(process.num_threads() for process in family),
        "resident": sum(process.memory_info().rss for process in family),
    }
