"""How much batching, the prefix cache, the event loop and the runtime's own time matter: ratios of one run on one machine.

    python benchmarks/serving.py [--json] [--topology inline|processes|both] [--rounds N] [--threads N]

Sides are measured in turn (A B A B ...), and each ratio is the median over the rounds, because a machine's speed drifts
more than what is measured here. Waits for a quiet machine first.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from machine import machine_facts


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Tokens and requests of the measurements."""

    concurrent: int = 16
    prompt: int = 32
    output: int = 64
    shared: int = 512
    own: int = 32
    shared_requests: int = 32
    shared_output: int = 16
    single_output: int = 128


QUICK = Sizes(concurrent=4, prompt=8, output=8, shared=64, own=8, shared_requests=4, shared_output=4, single_output=16)


@dataclass(kw_only=True)
class Result:
    """ratio: the median of `ratios`, one a round; target: what the project wants of it; a, b: the sides, by round."""

    what: str
    ratio: float
    target: str
    met: bool
    ratios: list[float]
    unit: str
    a: list[float]
    b: list[float]


@dataclass
class Bench:
    """Engines of one topology, and what is measured on them."""

    topology: str
    radix: Any
    chunk: Any
    overlap: Any
    sizes: Sizes
    rounds: int
    random: random.Random = field(default_factory=lambda: random.Random(1))

    def batching(self) -> Result:
        s = self.sizes
        one = lambda: self._speed(self.radix, [self._ids(s.prompt)], s.output)  # noqa: E731
        many = lambda: self._speed(self.radix, [self._ids(s.prompt) for _ in range(s.concurrent)], s.output)  # noqa: E731
        a, b = self._in_turn(one, many)
        what = f"output tokens/s of {s.concurrent} concurrent requests, over one"
        return _result(what, ">= 3", [y / x for x, y in zip(a, b, strict=True)], "output tokens/s", a, b)

    def sharing(self) -> Result:
        s = self.sizes
        a, b = self._in_turn(lambda: self._shared(self.chunk), lambda: self._shared(self.radix))
        what = (
            f"output tokens/s of {s.shared_requests} x ({s.shared} shared + {s.own} -> {s.shared_output} tokens) "
            "with the radix cache, over the chunk cache; both start empty"
        )
        return _result(what, ">= 3", [y / x for x, y in zip(a, b, strict=True)], "output tokens/s", a, b)

    def overlapping(self) -> Result:
        s = self.sizes

        def speed(engine: Any) -> float:
            return self._speed(engine, [self._ids(s.prompt) for _ in range(s.concurrent)], s.output)

        a, b = self._in_turn(lambda: speed(self.radix), lambda: speed(self.overlap))
        what = f"output tokens/s of {s.concurrent} concurrent requests with the event loop overlap, over normal"
        return _result(what, ">= 0.97", [y / x for x, y in zip(a, b, strict=True)], "output tokens/s", a, b)

    def outside_the_worker(self) -> Result:
        walls, workers = [], []
        prompt, output = self.sizes.prompt, self.sizes.single_output
        _generate(self.radix, [self._ids(prompt)], output)  # warm
        for _ in range(self.rounds):
            before, began = _worker_seconds(self.radix), time.perf_counter()
            _generate(self.radix, [self._ids(prompt)], output)
            walls.append(time.perf_counter() - began)
            workers.append(_worker_seconds(self.radix) - before)
        what = "share of the wall time of one request (batch 1) that is not spent in the worker"
        shares = [1 - worker / wall for wall, worker in zip(walls, workers, strict=True)]
        return _result(what, "<= 0.15", shares, "seconds", walls, workers)

    def _in_turn(self, a: Callable[[], float], b: Callable[[], float]) -> tuple[list[float], list[float]]:
        a(), b()  # warm
        first, second = [], []
        for _ in range(self.rounds):
            first.append(a())
            second.append(b())
        return first, second

    def _shared(self, engine: Any) -> float:
        engine.flush_cache()
        prefix = self._ids(self.sizes.shared)
        prompts = [prefix + self._ids(self.sizes.own) for _ in range(self.sizes.shared_requests)]
        return self._speed(engine, prompts, self.sizes.shared_output)

    def _speed(self, engine: Any, prompts: list[list[int]], output: int) -> float:
        began = time.perf_counter()
        made = _generate(engine, prompts, output)
        return made / (time.perf_counter() - began)

    def _ids(self, count: int) -> list[int]:
        top = self.radix._runtime.tokenizer_manager.limits.vocab_size
        return [self.random.randrange(3, top) for _ in range(count)]


def _worker_seconds(engine: Any) -> float:
    """So far, as the metrics tell it."""
    engine.get_server_info()  # its answer comes behind the scheduler's last report
    text = engine.expose_metrics().body.decode()
    (found,) = re.findall(r"^jackfield_forward_execution_seconds_total{.*} (.*)$", text, re.MULTILINE)
    return float(found)


def _generate(engine: Any, prompts: list[list[int]], output: int) -> int:
    sampling = {"max_new_tokens": output, "temperature": 0, "ignore_eos": True}
    answers = engine.generate(input_ids=prompts, sampling_params=sampling)
    made = sum(len(answer["output_ids"]) for answer in answers)
    if made != output * len(prompts):
        raise SystemExit(f"{made} tokens came back, {output * len(prompts)} were asked for")
    return made


def _result(what: str, target: str, ratios: list[float], unit: str, a: list[float], b: list[float]) -> Result:
    ratio = statistics.median(ratios)
    sign, bound = target.split()
    met = ratio >= float(bound) if sign == ">=" else ratio <= float(bound)
    return Result(what=what, ratio=ratio, target=target, met=met, ratios=ratios, unit=unit, a=a, b=b)


@contextmanager
def _benches(arguments: argparse.Namespace, sizes: Sizes) -> Iterator[list[Bench]]:
    from jackfield import Engine

    common: dict[str, Any] = {
        "dtype": "bfloat16",
        "skip_tokenizer_init": True,
        "max_total_tokens": 2 * sizes.shared_requests * (sizes.shared + sizes.own + sizes.shared_output),
        "check_invariants": "off",
        "metrics": ["prometheus"],
    }
    if arguments.model_path is not None:
        common["model_path"] = arguments.model_path
    topologies = ["inline", "processes"] if arguments.topology == "both" else [arguments.topology]
    with ExitStack() as stack:
        benches = []
        for topology in topologies:
            radix, chunk, overlap = (
                stack.enter_context(Engine(topology=topology, cache_policy=cache, event_loop=loop, **common))
                for cache, loop in (("radix", "normal"), ("chunk", "normal"), ("radix", "overlap"))
            )
            benches.append(Bench(topology, radix, chunk, overlap, sizes, arguments.rounds))
        yield benches


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    sizes = QUICK if arguments.quick else Sizes()
    told: dict[str, Any] = {
        "machine": machine_facts(arguments.wait, threads=arguments.threads),
        "results": {},
        "stacks": {},
    }
    with _benches(arguments, sizes) as benches:
        for bench in benches:
            results = {
                "batching": bench.batching(),
                "sharing": bench.sharing(),
                "overlapping": bench.overlapping(),
                "outside_the_worker": bench.outside_the_worker(),
            }
            told["results"][bench.topology] = {name: asdict(result) for name, result in results.items()}
            told["stacks"][bench.topology] = {
                name: engine.get_server_info()["stack"]["hash"]
                for name, engine in (("radix", bench.radix), ("chunk", bench.chunk), ("overlap", bench.overlap))
            }
    return told


def _show(told: dict[str, Any]) -> None:
    for topology, results in told["results"].items():
        for result in results.values():
            verdict = "met" if result["met"] else "MISSED"
            spread = ", ".join(f"{ratio:.2f}" for ratio in result["ratios"])
            print(f"{topology:9} {result['ratio']:6.2f}  ({result['target']}: {verdict})  {result['what']}  [{spread}]")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    parser.add_argument("--topology", choices=("inline", "processes", "both"), default="both")
    parser.add_argument("--model-path", help="as everywhere; not given: the embedded model")
    parser.add_argument("--rounds", type=int, default=4, help="how often each pair is measured (default 4)")
    parser.add_argument("--threads", type=int, default=2, help="torch's threads (default 2)")
    parser.add_argument("--wait", type=float, default=120.0, help="seconds to wait for a quiet machine (default 120)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it works, measures nothing")
    arguments = parser.parse_args(argv)
    # Before torch is imported, here and in the children.
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    told = measure(arguments)
    if arguments.json:
        json.dump(told, sys.stdout, indent=2)
        print()
    else:
        _show(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
