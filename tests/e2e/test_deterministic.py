"""`--enable-deterministic-inference` end to end: tokens, greedy and seeded, in every batch, chunk, cache, page size and loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jackfield import Engine
from jackfield.testing.covering import pairwise
from tests.e2e.engines import assert_alive, tiny

NEW = 24
SHARED = [(7 * i) % 120 + 2 for i in range(40)]
PROMPTS = [[5], [(3 * i) % 120 + 2 for i in range(17)], [*SHARED, 9, 10, 11], [*SHARED, 90, 91]]
SAMPLING: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1.5, "sampling_seed": 7},
    {"temperature": 1.0, "top_p": 0.9, "sampling_seed": 8},
    {"temperature": 2.0, "top_k": 20, "min_p": 0.01, "sampling_seed": 9},
]
REQUESTS = [{**one, "max_new_tokens": NEW, "ignore_eos": True} for one in SAMPLING]

FACTORS: dict[str, list[Any]] = {
    "cache_policy": ["radix", "chunk"],
    "page_size": [1, 16],
    "max_prefill_tokens": [16384, 16],
    "max_running_requests": [None, 2],
    "event_loop": ["normal", "overlap"],
    "warm": [False, True],
}


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def alone(request: pytest.FixtureRequest, tiny_model: Path) -> tuple[str, list[list[int]]]:
    """(dtype, each request's tokens with nobody beside it)."""
    with tiny(tiny_model, enable_deterministic_inference=True, dtype=request.param, cache_policy="chunk") as engine:
        answers = [
            engine.generate(input_ids=prompt, sampling_params=one)
            for prompt, one in zip(PROMPTS, REQUESTS, strict=True)
        ]
    return request.param, [answer["output_ids"] for answer in answers]


@pytest.mark.parametrize("row", pairwise(FACTORS), ids=lambda row: "-".join(map(str, row.values())))
def test_tokens_are_those_of_each_request_alone(
    tiny_model: Path, alone: tuple[str, list[list[int]]], row: dict[str, Any]
) -> None:
    dtype, expected = alone
    warm = row["warm"]
    args = {name: value for name, value in row.items() if name != "warm"}
    with tiny(tiny_model, enable_deterministic_inference=True, dtype=dtype, **args) as engine:
        if warm:
            engine.generate(input_ids=PROMPTS[::-1], sampling_params={"max_new_tokens": 3})
        answers = engine.generate(input_ids=PROMPTS, sampling_params=REQUESTS)
        assert [answer["output_ids"] for answer in answers] == expected
        assert_alive(engine)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_embedded_model(embedded_model: Path, dtype: str) -> None:
    prompts = [
        "The capital of France is",
        "Once upon a time, in a small village by the sea,",
        "def quicksort(xs):",
        "2, 3, 5,",
    ]
    requests = [{**one, "max_new_tokens": 12} for one in REQUESTS]
    common: dict[str, Any] = {
        "topology": "inline",
        "dtype": dtype,
        "max_total_tokens": 4096,
        "check_invariants": "step",
    }
    texts: list[list[list[int]]] = []
    for args in ({"cache_policy": "chunk"}, {"max_prefill_tokens": 16, "page_size": 16, "event_loop": "overlap"}):
        with Engine(enable_deterministic_inference=True, **common, **args) as engine:
            if not texts:
                answers = [
                    engine.generate(prompt=prompt, sampling_params=one)
                    for prompt, one in zip(prompts, requests, strict=True)
                ]
            else:
                answers = engine.generate(prompt=prompts, sampling_params=requests)
            texts.append([answer["output_ids"] for answer in answers])
    assert texts[0] == texts[1]
