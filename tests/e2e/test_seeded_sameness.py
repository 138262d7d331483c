"""Seeded draws do not depend on the stack, memory or company either, whatever changes the logits before them: penalties, bias,
least lengths and logits processors, whose state has to survive retractions, chunks and surplus steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jackfield.testing.covering import pairwise
from tests.e2e.engines import assert_alive, tiny

NEW = 32
PROCESSORS = ["no-repeat-ngram", "dry"]
BASE: dict[str, Any] = {"max_new_tokens": NEW, "ignore_eos": True}
REQUESTS: list[tuple[list[int], dict[str, Any]]] = [
    ([5], {"temperature": 1.0, "seed": 1, "frequency_penalty": 1.2}),
    (
        [(3 * i) % 120 + 2 for i in range(30)],
        {"temperature": 0.7, "top_k": 30, "seed": 2, "presence_penalty": 1.5, "repetition_penalty": 1.4},
    ),
    (
        [(7 * i) % 120 + 2 for i in range(40)],
        {"temperature": 1.3, "top_p": 0.9, "seed": 3, "logits_processors": {"no-repeat-ngram": {"ngram_size": 2}}},
    ),
    (
        [*((7 * i) % 120 + 2 for i in range(40)), 9, 9],
        {"temperature": 1.0, "min_p": 0.02, "seed": 4, "logits_processors": {"dry": {"multiplier": 0.8}}},
    ),
    (
        [8, 3] * 10,
        {"temperature": 2.0, "seed": 5, "repetition_penalty": 0.8, "logit_bias": {"17": 4.5}, "min_new_tokens": 20}
        | {"stop_token_ids": [40, 41, 42, 43, 44, 45]},
    ),
    (
        [6, 5, 4],
        {"temperature": 0.9, "seed": 6, "frequency_penalty": -0.5, "logits_processors": {"dry": {"multiplier": 1}}},
    ),
]
FACTORS: dict[str, list[Any]] = {
    "event_loop": ["normal", "overlap"],
    "memory": ["ample", "retracting"],
    "cache_policy": ["radix", "chunk"],
    "page_size": [1, 16, 64],
    "chunked_prefill_size": [None, 64, -1],
    "schedule_policy": ["fcfs", "token-budget", "priority", "random"],
    "max_running_requests": [None, 3],
    "deterministic": [False, True],
    "n": [1, 2],
}
RETRACTING = 128


@pytest.fixture(scope="module")
def alone(tiny_model: Path) -> list[list[list[int]]]:
    """For each request, the tokens of each of its choices, with nobody beside it and nothing shared."""
    with tiny(tiny_model, cache_policy="chunk", logits_processors=PROCESSORS) as engine:
        found = [
            choices(engine.generate(input_ids=[prompt], sampling_params=BASE | how | {"n": 2}))
            for prompt, how in REQUESTS
        ]
    assert all(len({tuple(ids) for ids in each}) == 2 for each in found), "choices of one request draw for themselves"
    return found


def choices(answers: list[dict[str, Any]]) -> list[list[int]]:
    return [answer["output_ids"] for answer in answers]


@pytest.mark.parametrize("row", pairwise(FACTORS), ids=lambda row: "-".join(map(str, row.values())))
def test_draws_are_those_of_each_request_alone(
    tiny_model: Path, alone: list[list[list[int]]], row: dict[str, Any]
) -> None:
    own = ("memory", "deterministic", "n")
    args = {name: value for name, value in row.items() if name not in own}
    args["enable_deterministic_inference"] = row["deterministic"]
    if row["memory"] == "retracting":
        args |= {"max_total_tokens": RETRACTING, "schedule_conservativeness": 0.01}
    n = row["n"]
    with tiny(tiny_model, logits_processors=PROCESSORS, random_seed=1, **args) as engine:
        for order in (
            range(len(REQUESTS)),
            range(len(REQUESTS) - 1, -1, -1),
        ):  # cold; then from the cache, in other rows
            at = list(order)
            answers = engine.generate(
                input_ids=[REQUESTS[i][0] for i in at], sampling_params=[{**BASE, **REQUESTS[i][1], "n": n} for i in at]
            )
            found = [choices(answers[k * n : (k + 1) * n]) for k in range(len(at))]
            assert found == [alone[i][:n] for i in at]
        if row["memory"] == "retracting":
            assert engine.get_server_info()["scheduler"]["retractions"] > 0
        assert_alive(engine)
