"""The five workloads, and the prompts of each: one rule for every engine, and `jackfield bench offline`'s.

Prompts are pseudo-random token ids from a fixed generator, ordinary tokens of the model only. Each repetition has its own, so
that no prefix cache carries anything from one to the next. Standard library only, for it runs in each peer's Python.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Workload:
    """prompt, new: tokens of each request; shared: of the prompt, the same in all of them; speed: what the value counts.

    Values are tokens per second, but of `first`: seconds.
    """

    requests: int
    prompt: int
    new: int
    shared: int = 0
    speed: str


WORKLOADS = {
    "decode": Workload(requests=1, prompt=128, new=128, speed="new tokens after the first"),
    "prefill": Workload(requests=1, prompt=1024, new=1, speed="prompt tokens, to the first new token"),
    "batch": Workload(requests=32, prompt=256, new=128, speed="new tokens of all requests, prefill included"),
    "prefix": Workload(
        requests=32, prompt=544, new=64, shared=512, speed="new tokens of all requests, prefill included"
    ),
    "first": Workload(requests=1, prompt=16, new=1, speed="process start to first token"),
}

LOWEST, HIGHEST = 1000, 45_000
"""Ids are drawn from LOWEST up to, not including, HIGHEST: no special token of SmolLM2."""


def token_ids(count: int, seed: int) -> list[int]:
    """The same on every machine: a linear congruential generator modulo 2**31, its low eight bits dropped."""
    state = (seed * 2654435761 + 12345) % 2**31
    found = []
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        found.append(LOWEST + (state >> 8) % (HIGHEST - LOWEST))
    return found


def prompts(test: str, repetition: int) -> list[list[int]]:
    """One list of ids a request."""
    work = WORKLOADS[test]
    head = token_ids(work.shared, 1_000_003 + repetition)
    own = work.prompt - work.shared
    return [head + token_ids(own, 7919 * (repetition + 1) + request) for request in range(work.requests)]
