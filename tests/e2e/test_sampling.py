"""Sampling on a tiny random model: extremes, neighbours, seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jackfield.managers.errors import RequestError
from tests.e2e.engines import assert_alive, tiny

PROMPT = [3, 14, 15, 92, 65]


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> Any:
    with tiny(tiny_model) as engine:
        yield engine
        assert_alive(engine)


def ids(engine: Any, **params: Any) -> list[int]:
    answer = engine.generate(input_ids=PROMPT, sampling_params={"max_new_tokens": 24, "ignore_eos": True, **params})
    found: list[int] = answer["output_ids"]
    return found


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1e-6},
        {"temperature": 1e-4},
        {"temperature": 2, "top_p": 1e-4},
        {"temperature": 2, "top_k": 1},
        {"temperature": 2, "min_p": 1.0},
    ],
)
def test_b62_tiny_values_act_greedily(engine: Any, params: dict[str, Any]) -> None:
    assert ids(engine, **params) == ids(engine, temperature=0)


def test_b62_extremes_leave_their_neighbours_alone(engine: Any) -> None:
    odd = [{"temperature": 1e-6}, {"temperature": 1e-4}, {"temperature": 2}, {"temperature": 1, "top_p": 1e-4}]
    normal = {"temperature": 0.8, "top_p": 0.9, "seed": 11}
    base = {"max_new_tokens": 24, "ignore_eos": True}
    batch = engine.generate(input_ids=[PROMPT] * 5, sampling_params=[{**base, **params} for params in [*odd, normal]])
    assert batch[-1]["output_ids"] == ids(engine, **normal)


def test_a_seed_gives_the_same_tokens_whoever_else_is_in_the_batch(engine: Any) -> None:
    params = {"temperature": 1.0, "seed": 5, "max_new_tokens": 24, "ignore_eos": True}
    alone = ids(engine, temperature=1.0, seed=5)
    for others in (1, 4):
        prompts = [[20 + i] * (3 + i) for i in range(others)]
        batch = engine.generate(
            input_ids=[*prompts, PROMPT],
            sampling_params=[{"temperature": 1.0, "max_new_tokens": 30, "ignore_eos": True}] * others + [params],
        )
        assert batch[-1]["output_ids"] == alone
    assert ids(engine, temperature=1.0, seed=6) != alone


@pytest.mark.parametrize("top_k", [-1, 0, 128, 10**9])
def test_b63_minus_one_and_zero_turn_top_k_off(engine: Any, top_k: int) -> None:
    assert ids(engine, temperature=1.0, seed=5, top_k=top_k) == ids(engine, temperature=1.0, seed=5)


@pytest.mark.parametrize("bad", [{"top_p": 0}, {"top_p": 1.1}, {"min_p": 1.1}, {"min_p": -0.1}, {"top_k": -2}])
def test_b63_out_of_range_is_refused_and_zero_top_p_is_not_one(engine: Any, bad: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refused:
        ids(engine, **bad)
    assert refused.value.param in bad


@pytest.mark.parametrize("good", [{"top_p": 1}, {"min_p": 0}, {"min_p": 1}, {"top_k": 1}])
def test_b63_the_ends_of_the_ranges_are_taken(engine: Any, good: dict[str, Any]) -> None:
    assert len(ids(engine, temperature=1.0, **good)) == 24
