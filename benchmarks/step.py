"""What a decode step costs beside the model: scheduler, detokenizer, worker's preparation, sampling; inline.

    python benchmarks/step.py [--json] [--rounds N] [--wait S] [--model-path M]

The engine's own CPU a step, all of its thread but the model's forward, for one and 32 running requests, greedy and sampled; once
for the simulated worker, which shows the scheduler and the text side alone. A long answer less a short one, so that prompts and
the call itself do not count; the least of the rounds, because neighbours can only add. Milliseconds of a shared machine say
little: `reference` is what so many small NumPy operations cost in the same minutes, and each figure is told in those too.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from figures import Figure, report
from machine import machine_facts

REFERENCE_CALLS = 1000
WANTED_MS = {1: 0.35, 32: 1.5}
SAMPLED = {"temperature": 0.8, "top_p": 0.95, "top_k": 50}
SHORT = 8


class Spent:
    """CPU of this thread in some methods of classes, all together."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def count(self, owner: type, name: str) -> None:
        method: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(method)
        def counted(*args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds += time.thread_time() - began

        setattr(owner, name, counted)


def reference() -> float:
    """Milliseconds of so many small operations, each with a result of its own, as a step is made of."""
    array = np.arange(32)
    began = time.thread_time()
    for _ in range(REFERENCE_CALLS):
        np.count_nonzero(array + 1)
    return (time.thread_time() - began) * 1e3


class Subject:
    """long: tokens of the longer answer."""

    def __init__(self, engine: Any, forward: Spent, random_ids: random.Random, long: int) -> None:
        self.engine = engine
        self.forward = forward
        self.random = random_ids
        self.long = long
        self.vocab = engine._runtime.tokenizer_manager.limits.vocab_size

    def spent(self, running: int, new: int, sampling: dict[str, Any], stream: bool) -> float:
        """Milliseconds of this thread in one call, without the forward."""
        prompts = [[self.random.randrange(8, self.vocab) for _ in range(16)] for _ in range(running)]
        fields = {"max_new_tokens": new, "ignore_eos": True, "temperature": 0, **sampling}
        before, began = self.forward.seconds, time.thread_time()
        answers = self.engine.generate(input_ids=prompts, sampling_params=fields, stream=stream)
        if stream:
            for _ in answers:
                pass
        return (time.thread_time() - began - (self.forward.seconds - before)) * 1e3

    def step(self, running: int, sampling: dict[str, Any], stream: bool) -> float:
        short = self.spent(running, SHORT, sampling, stream)
        return (self.spent(running, self.long, sampling, stream) - short) / (self.long - SHORT)


def figures_of(name: str, subject: Subject, rounds: int, sampled: bool) -> dict[str, Figure]:
    figures = {}
    kinds = [("greedy", {}, False), ("streamed", {}, True)] + ([("sampled", SAMPLED, False)] if sampled else [])
    for running, wanted in WANTED_MS.items():
        for kind, sampling, stream in kinds:
            subject.step(running, sampling, stream)  # warm
            values, references = [], []
            for _ in range(rounds):
                references.append(reference())
                values.append(subject.step(running, sampling, stream))
            least = min(values)
            told = f"{kind}, {running} running, {name} ({least / min(references):.2f} references)"
            figures[f"{name}_{kind}_{running}"] = Figure(
                what=told,
                value=least,
                unit="ms",
                values=values,
                target=f"<= {wanted}",
                met=least <= wanted,
                b=references,
            )
    return figures


def measure(arguments: argparse.Namespace) -> dict[str, Figure]:
    from jackfield import Engine

    common: dict[str, Any] = {"topology": "inline", "check_invariants": "off", "max_total_tokens": 16_384}
    options = {"worker.simulated": {"verify": "off"}}
    forward = Spent()
    numbers, long = random.Random(1), 16 if arguments.quick else 136
    with Engine(worker="simulated", options=options, **common) as engine:
        figures = figures_of("simulated", Subject(engine, forward, numbers, long), arguments.rounds, sampled=False)
    model = {} if arguments.model_path is None else {"model_path": arguments.model_path, "skip_tokenizer_init": True}
    with Engine(dtype="bfloat16", **model, **common) as engine:
        from jackfield.model_executor.model_runner import ModelRunner

        forward.count(ModelRunner, "forward")
        return figures | figures_of("torch", Subject(engine, forward, numbers, long), arguments.rounds, sampled=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is measured (default 7)")
    parser.add_argument("--wait", type=float, default=120.0, help="seconds to wait for a quiet machine (default 120)")
    parser.add_argument("--model-path", help="as everywhere; not given: the embedded model")
    parser.add_argument("--threads", type=int, default=2, help="threads of arithmetic (default 2)")
    parser.add_argument("--quick", action="store_true", help="short answers: shows that it works, measures nothing")
    arguments = parser.parse_args(argv)
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # before torch is imported
    machine = machine_facts(arguments.wait, threads=arguments.threads)
    report(machine, measure(arguments), arguments.json, ["jackfield"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
