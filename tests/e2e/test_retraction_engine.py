"""Retraction in a whole engine on a tiny model: what clients see of it is a number in the answer, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jackfield.testing.covering import pairwise
from tests.e2e.engines import assert_alive, tiny

PROMPTS = [[(seed * i) % 120 + 2 for i in range(60)] for seed in (3, 5, 7, 11)]
GREEDY = {"temperature": 0, "max_new_tokens": 120, "ignore_eos": True}
SEEDED = {"temperature": 1.0, "max_new_tokens": 120, "ignore_eos": True, "seed": 17}

ROWS = pairwise(
    {
        "event_loop": ["normal", "overlap"],
        "cache_policy": ["radix", "chunk"],
        "page_size": [1, 16],
        "chunked_prefill_size": [None, 32],
        "sampling": [GREEDY, SEEDED],
    }
)


@pytest.fixture(scope="module")
def alone(tiny_model: Path) -> dict[str, list[list[int]]]:
    """Each request alone, in a pool with room for all."""
    with tiny(tiny_model) as engine:
        return {
            name: [engine.generate(input_ids=prompt, sampling_params=params)["output_ids"] for prompt in PROMPTS]
            for name, params in (("greedy", GREEDY), ("seeded", SEEDED))
        }


@pytest.mark.parametrize(
    "row", ROWS, ids=["-".join(str(row[name]) for name in ("event_loop", "cache_policy", "page_size")) for row in ROWS]
)
def test_b40_four_requests_in_a_pool_for_two(tiny_model: Path, alone: dict[str, Any], row: dict[str, Any]) -> None:
    args = {name: row[name] for name in ("event_loop", "cache_policy", "page_size", "chunked_prefill_size")}
    params = row["sampling"]
    with tiny(tiny_model, max_total_tokens=384, schedule_conservativeness=0.01, **args) as engine:
        answers = engine.generate(input_ids=PROMPTS, sampling_params=params)
        assert [answer["output_ids"] for answer in answers] == alone["greedy" if params is GREEDY else "seeded"]
        retractions = [answer["meta_info"]["num_retractions"] for answer in answers]
        assert sum(retractions) == engine.get_server_info()["scheduler"]["retractions"] > 0
        assert min(retractions) == 0  # somebody went through
        assert_alive(engine)


@pytest.mark.parametrize(
    ("event_loop", "topology"), [("normal", "inline"), ("overlap", "inline"), ("overlap", "processes")]
)
def test_b40_streams_have_no_gap_and_no_repeat(
    tiny_model: Path, alone: dict[str, Any], event_loop: str, topology: str
) -> None:
    small = {"max_total_tokens": 384, "schedule_conservativeness": 0.01}
    with tiny(tiny_model, event_loop=event_loop, topology=topology, **small) as engine:
        streams = [engine.generate(input_ids=prompt, sampling_params=GREEDY, stream=True) for prompt in PROMPTS]
        seen: list[list[list[int]]] = [[] for _ in streams]
        left = list(enumerate(streams))
        while left:
            for i, stream in left[:]:
                chunk = next(stream, None)
                if chunk is None:
                    left.remove((i, stream))
                else:
                    seen[i].append(chunk["output_ids"])
        for chunks, expected in zip(seen, alone["greedy"], strict=True):
            lengths = [len(ids) for ids in chunks]
            assert lengths == sorted(lengths)
            assert all(ids == expected[: len(ids)] for ids in chunks)
            assert chunks[-1] == expected
        assert engine.get_server_info()["scheduler"]["retractions"] > 0
        assert_alive(engine)


def test_with_the_worst_case_reserved_nobody_is_retracted(tiny_model: Path, alone: dict[str, Any]) -> None:
    with tiny(tiny_model, max_total_tokens=384, schedule_conservativeness=10.3) as engine:
        answers = engine.generate(input_ids=PROMPTS, sampling_params=GREEDY)
        assert [answer["output_ids"] for answer in answers] == alone["greedy"]
        assert engine.get_server_info()["scheduler"]["retractions"] == 0


@pytest.mark.parametrize("event_loop", ["normal", "overlap"])
def test_b50_an_urgent_request_displaces_one_that_is_not(
    tiny_model: Path, alone: dict[str, Any], event_loop: str
) -> None:
    with tiny(tiny_model, schedule_policy="priority", max_running_requests=2, event_loop=event_loop) as engine:
        low = [engine.generate(input_ids=prompt, sampling_params=GREEDY, stream=True) for prompt in PROMPTS[:2]]
        for stream in low:
            next(stream)
        high = engine.generate(input_ids=PROMPTS[2], sampling_params=GREEDY, priority=11)
        assert high["output_ids"] == alone["greedy"][2]
        assert high["meta_info"]["num_retractions"] == 0
        seen = [list(stream)[-1] for stream in low]
        assert [answer["output_ids"] for answer in seen] == alone["greedy"][:2]
        assert [answer["meta_info"]["num_retractions"] for answer in seen] == [0, 1]
        assert_alive(engine)
