"""Jackfield behind HTTP, as `jackfield serve` starts it: a request of `/generate` for each prompt, all of them at once.

One request is streamed, so that decoding has a speed of its own; many are not, unless `--stream` says so. The client shares the
machine with the server, as it does for whoever compares the two. Flags that are not this script's are the server's.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
from measuring import Times, measure, parser


@contextmanager
def served(flags: Sequence[str], threads: int) -> Iterator[str]:
    """The address of a server that is ready."""
    command = [sys.executable, "-m", "jackfield", "serve", "--port", "0", *flags]
    environ = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S*:\d+", process.stdout.readline())
        if found is None:
            raise SystemExit("`jackfield serve` did not come up")
        yield found.group(0)
    finally:
        process.terminate()
        process.wait()


class Client:
    """Runs one repetition at a server; it must be used on one event loop."""

    def __init__(self, address: str, stream: bool) -> None:
        self.stream = stream
        limits = httpx.Limits(max_connections=None)
        self.http = httpx.AsyncClient(base_url=address, timeout=None, limits=limits, trust_env=False)

    async def run(self, prompts: list[list[int]], new: int) -> Times:
        one = self._streamed if self.stream or len(prompts) == 1 else self._whole
        began = time.perf_counter()
        found = await asyncio.gather(*(one(prompt, new) for prompt in prompts))
        last = time.perf_counter()
        for made, _, _ in found:
            if made != new:
                raise SystemExit(f"{made} tokens came back, {new} were asked for")
        first = [at for _, at, _ in found if at is not None]
        return Times(last=last - began, first=min(first) - began if first else None, between=new - found[0][2])

    async def _whole(self, prompt: list[int], new: int) -> tuple[int, None, int]:
        answer = await self.http.post("/generate", json=self._body(prompt, new, stream=False))
        return _tokens(answer.raise_for_status().json()), None, 1

    async def _streamed(self, prompt: list[int], new: int) -> tuple[int, float, int]:
        """Tokens, time of the first event, and the tokens that it brought."""
        events: list[tuple[float, str]] = []
        async with self.http.stream("POST", "/generate", json=self._body(prompt, new, stream=True)) as answer:
            answer.raise_for_status()
            async for text in answer.aiter_lines():
                if text.startswith("data: {"):
                    events.append((time.perf_counter(), text))
        # Read when all is over: only the arrival counts.
        first, last = (json.loads(text.removeprefix("data: ")) for _, text in (events[0], events[-1]))
        return _tokens(last), events[0][0], _tokens(first)

    def _body(self, prompt: list[int], new: int, *, stream: bool) -> dict[str, Any]:
        sampling = {"temperature": 0, "max_new_tokens": new, "ignore_eos": True}
        return {"input_ids": prompt, "sampling_params": sampling, "stream": stream}


def _tokens(answer: dict[str, Any]) -> int:
    if "error" in answer:
        raise SystemExit(f"the server answered: {answer['error']}")
    count: int = answer["meta_info"]["completion_tokens"]
    return count


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--stream", action="store_true", help="stream the answers of many requests too")
    given, flags = arguments.parse_known_args()
    if given.test == "first":
        raise SystemExit("the start of a server is not measured: `first` is of jackfield_offline.py")
    with served(flags, given.threads) as address, asyncio.Runner() as runner:
        client = Client(address, given.stream)
        info = runner.run(_info(client))
        measure(
            given,
            lambda prompts, new: runner.run(client.run(prompts, new)),
            adapter="jackfield-server",
            version=info["version"],
            children=True,
            stack={"hash": info["stack"]["hash"]},
            stream=given.stream,
        )
        runner.run(client.http.aclose())


async def _info(client: Client) -> Any:
    return (await client.http.get("/server_info")).raise_for_status().json()


if __name__ == "__main__":
    main()
