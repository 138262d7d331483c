"""How many tokens a second a server streams, where the model costs nothing: HTTP, tokenizer, detokenizer and scheduler alone.

    python benchmarks/streaming.py [--json] [--rounds N] [--streams N] [--tokens N]

64 clients' streams at once of a server with the simulated worker, beside a bare Starlette application that sends events as long,
one after the other, made beforehand; both under uvicorn, in turn (A B A B ...), read by `byte_client.py`. A paced run, in which
the worker's steps take as long as those of a model, says how much later than the step itself a token comes. Where the worker is
faster than the way to the client, tokens wait for each other and go out together: the sustained run has a pace at which each
goes out alone.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from machine import machine_facts

HERE = Path(__file__).resolve().parent
PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
TARGET = 20_000
STEP_MS = 25.0
SUSTAINED_STEP_MS = 2.0
ONE_A_CHUNK = 0.98
"""Least chunks a token of the sustained run: characters of several tokens, and now and then two tokens at once, are let pass."""

BARE = """
import asyncio, socket, sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route
EVENT = b"data: " + b"x" * (int(sys.argv[2]) - 8) + b"\\n\\n"
async def answer(request):
    async def events():
        for _ in range(int(sys.argv[1])):
            yield EVENT
            await asyncio.sleep(0)
        yield b"data: [DONE]\\n\\n"
    return StreamingResponse(events(), media_type="text/event-stream")
listening = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", http="h11", loop="asyncio")).run([listening])
"""


@contextmanager
def served(*command: str) -> Iterator[tuple[int, psutil.Process]]:
    """A server that has said at which address it is."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://[^ ]*:(\d+)", line)
        if found is None:
            raise SystemExit(f"the server did not come up: {line!r}")
        yield int(found.group(1)), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def jackfield(tokens: int, streams: int, *more: str) -> tuple[str, ...]:
    script = json.dumps(" word" * (tokens + 1))
    options = {"script": script, "base_us": 0, "decode_us_per_row": 0, "prefill_us_per_token": 0, "verify": "off"}
    options["kv_us_per_context_token"] = 0
    flags = [flag for name, value in options.items() for flag in ("--option", f"worker.simulated.{name}={value}")]
    size = str(2 * streams * (tokens + 128))
    flags += ["--max-total-tokens", size, "--max-running-requests", str(streams), "--check-invariants", "off"]
    return ("-m", "jackfield", "serve", "--port", "0", "--worker", "simulated", "--skip-server-warmup", *flags, *more)


def body(route: str, tokens: int) -> str:
    fields: dict[str, Any] = {"max_tokens": tokens, "stream": True, "ignore_eos": True, "temperature": 0}
    fields |= {"messages": [{"role": "user", "content": "Go"}]} if route == "chat" else {"prompt": "Go"}
    return json.dumps(fields)


def read(server: tuple[int, psutil.Process], streams: int, route: str, tokens: int) -> dict[str, Any]:
    """One measurement: what `byte_client` tells, and tokens and chunks a second and the server's CPU seconds, by process."""
    port, process = server
    family = [process, *process.children(recursive=True)]
    before = [_cpu(one) for one in family]
    command = [sys.executable, str(HERE / "byte_client.py"), str(port), str(streams), PATHS[route], body(route, tokens)]
    told: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    told["server_cpu_seconds"] = [round(_cpu(one) - past, 2) for one, past in zip(family, before, strict=True)]
    told["tokens_per_second"] = streams * tokens / told["seconds"]
    told["chunks_per_second"] = told["events"] / told["seconds"]
    told["event_bytes"] = told["bytes"] / told["events"]
    return told


def _paced(step_ms: float, streams: int, route: str, tokens: int) -> dict[str, Any]:
    """As `read`, with steps of the simulated worker that take their time."""
    pace = ("--option", "worker.simulated.realtime=true", "--option", f"worker.simulated.base_us={step_ms * 1000}")
    with served(*jackfield(tokens, streams, *pace)) as server:
        read(server, streams, route, max(8, tokens // 10))  # warm
        return read(server, streams, route, tokens)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    streams, tokens, route = arguments.streams, arguments.tokens, arguments.route
    told: dict[str, Any] = {"machine": machine_facts(arguments.wait), "streams": streams, "tokens": tokens}
    ours, bare = [], []
    with served(*jackfield(tokens, streams)) as server:
        size = int(read(server, streams, route, tokens)["event_bytes"])  # warm
        with served("-c", BARE, str(tokens), str(size)) as other:
            read(other, streams, "chat", tokens)
            for _ in range(arguments.rounds):
                ours.append(read(server, streams, route, tokens))
                bare.append(read(other, streams, "chat", tokens))
    few = max(8, tokens // 4)
    paced = _paced(STEP_MS, streams, route, few)
    sustained = [_paced(SUSTAINED_STEP_MS, streams, route, tokens) for _ in range(arguments.rounds)]
    paced["added_ms"] = {name: value - STEP_MS for name, value in paced["gap_ms"].items()}
    rates = [one["tokens_per_second"] for one in ours]
    told["tokens_per_second"] = statistics.median(rates)
    told["sustained"] = {
        "tokens_per_second": statistics.median(one["tokens_per_second"] for one in sustained),
        "chunks_per_token": statistics.median(one["events"] / (streams * tokens) for one in sustained),
    }
    told["met"] = (
        told["sustained"]["tokens_per_second"] >= TARGET and told["sustained"]["chunks_per_token"] >= ONE_A_CHUNK
    )
    told["chunks_per_token"] = statistics.median(one["events"] / (streams * tokens) for one in ours)
    told["over_bare"] = [a["chunks_per_second"] / b["chunks_per_second"] for a, b in zip(ours, bare, strict=True)]
    return told | {"ours": ours, "bare": bare, "paced": paced}


def _show(told: dict[str, Any]) -> None:
    for name in ("ours", "bare"):
        for one in told[name]:
            gaps, cpu = one["gap_ms"], (one["client_cpu_seconds"], one["server_cpu_seconds"])
            print(
                f"{name}: {one['chunks_per_second']:8.0f} chunks/s of {one['event_bytes']:.0f} bytes, gaps p50 {gaps['p50']:.1f} "
                f"p99 {gaps['p99']:.1f} ms; CPU s: client {cpu[0]:.2f}, server {cpu[1]} in {one['seconds']:.2f} s"
            )
    verdict, over = "met" if told["met"] else "MISSED", statistics.median(told["over_bare"])
    print(
        f"as fast as they come: {told['tokens_per_second']:.0f} tokens/s in {told['chunks_per_token']:.2f} chunks a token"
    )
    held = told["sustained"]
    print(
        f"sustained, steps of {SUSTAINED_STEP_MS:g} ms: {held['tokens_per_second']:.0f} tokens/s in "
        f"{held['chunks_per_token']:.2f} chunks a token; {TARGET} tokens/s, each a chunk: {verdict}"
    )
    print(f"chunks/s over those of bare Starlette: {over:.2f}")
    added = told["paced"]["added_ms"]
    print(
        f"steps of {STEP_MS:.0f} ms: a token is p50 {added['p50']:.1f}, p99 {added['p99']:.1f} ms later than its step"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    parser.add_argument("--route", choices=tuple(PATHS), default="chat")
    parser.add_argument("--rounds", type=int, default=4, help="how often each side is measured (default 4)")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=1000, help="of each stream (default 1000)")
    parser.add_argument("--wait", type=float, default=120.0, help="seconds to wait for a quiet machine (default 120)")
    arguments = parser.parse_args(argv)
    told = measure(arguments)
    if arguments.json:
        json.dump(told, sys.stdout, indent=2)
        print()
    else:
        _show(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
