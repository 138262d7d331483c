"""What of the inline engine's speed is left through the HTTP server with its processes: ratios of one run on one machine.

    python benchmarks/through_http.py [--json] [--rounds N] [--threads N] [--model-path M] [--wait S]

The sides are measured in turn (A B A B ...), each with the model to itself: `Engine` in a process of its own, and `jackfield
serve` with 32 clients that send at once. Neither streams. Prompts are other ones in each round, so that no prefix is there.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from figures import Figure, over, ratio, report
from machine import machine_facts
from streaming import served

TARGET = ">= 0.92"
IDS = 96
"""Prompts are of ids below this, which every vocabulary has; what a prompt says is nothing to its speed."""


@dataclass(frozen=True)
class Load:
    """So many requests at once, of `shared` + `own` prompt tokens and `new` answered ones."""

    requests: int
    shared: int
    own: int
    new: int

    def prompts(self, seed: int) -> list[list[int]]:
        numbers = random.Random(seed)
        prefix = [numbers.randrange(8, IDS) for _ in range(self.shared)]
        return [prefix + [numbers.randrange(8, IDS) for _ in range(self.own)] for _ in range(self.requests)]


LOADS = {"decode": Load(1, 0, 128, 128), "batch": Load(32, 0, 256, 128), "prefix": Load(32, 512, 32, 64)}
QUICK = {"decode": Load(1, 0, 8, 8), "prefix": Load(4, 32, 8, 4)}

ENGINE = """
import json, sys, time
from jackfield import Engine
with Engine(**json.loads(sys.argv[1])) as engine:
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        began = time.perf_counter()
        answers = engine.generate(**asked)
        seconds = time.perf_counter() - began
        print(json.dumps([seconds, sum(len(one["output_ids"]) for one in answers)]), flush=True)
"""


def sampling(load: Load) -> dict[str, Any]:
    return {"max_new_tokens": load.new, "temperature": 0, "ignore_eos": True}


class Inline:
    """An engine in a process of its own, which sleeps while it is asked nothing."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        command = [sys.executable, "-c", ENGINE, json.dumps({**arguments, "topology": "inline"})]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._line() != "ready":
            raise SystemExit("the engine did not come up")

    def speed(self, load: Load, prompts: list[list[int]]) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"input_ids": prompts, "sampling_params": sampling(load)}) + "\n")
        self.process.stdin.flush()
        seconds, made = json.loads(self._line())
        return tokens_a_second(load, made, seconds)

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def served_speed(port: int, load: Load, prompts: list[list[int]], clients: ThreadPoolExecutor) -> float:
    """Each request on a connection of its own."""
    bodies = [json.dumps({"input_ids": prompt, "sampling_params": sampling(load)}) for prompt in prompts]

    def ask(body: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", "/generate", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        if response.status != 200:
            raise SystemExit(f"the server answered {response.status}: {answer}")
        return len(answer["output_ids"])

    began = time.perf_counter()
    made = sum(clients.map(ask, bodies))
    return tokens_a_second(load, made, time.perf_counter() - began)


def tokens_a_second(load: Load, made: int, seconds: float) -> float:
    if made != load.requests * load.new:
        raise SystemExit(f"{made} tokens came back, {load.requests * load.new} were asked for")
    return made / seconds


def measure(arguments: argparse.Namespace) -> dict[str, Figure]:
    loads = QUICK if arguments.quick else LOADS
    size = max(2 * load.requests * (load.shared + load.own + load.new) for load in loads.values())
    fields: dict[str, Any] = {"dtype": "bfloat16", "skip_tokenizer_init": True, "max_total_tokens": size}
    fields |= {} if arguments.model_path is None else {"model_path": arguments.model_path}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in fields.items() if value is not True]
    command = ("-m", "jackfield", "serve", "--port", "0", "--skip-tokenizer-init", "--skip-server-warmup", *flags)
    figures, inline = {}, Inline(fields)
    with served(*command) as (port, _), ThreadPoolExecutor(32) as clients:
        for name, load in loads.items():
            a, b = [], []
            for turn in range(arguments.rounds + 1):
                one = inline.speed(load, load.prompts(2 * turn))
                other = served_speed(port, load, load.prompts(2 * turn + 1), clients)
                if turn:  # the first warms up
                    a.append(one)
                    b.append(other)
            what = f"{load.requests} x ({load.shared} shared + {load.own} -> {load.new}) over HTTP, over inline"
            figures[name] = ratio(what, a, b, over, TARGET, "output tokens/s")
    inline.close()
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    parser.add_argument("--model-path", help="as everywhere; not given: the embedded model")
    parser.add_argument("--rounds", type=int, default=5, help="how often each pair is measured (default 5)")
    parser.add_argument("--threads", type=int, default=2, help="threads of arithmetic (default 2)")
    parser.add_argument("--wait", type=float, default=120.0, help="seconds to wait for a quiet machine (default 120)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it works, measures nothing")
    arguments = parser.parse_args(argv)
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # both sides are children
    machine = machine_facts(arguments.wait, threads=arguments.threads)
    report(machine, measure(arguments), arguments.json, ["jackfield"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
