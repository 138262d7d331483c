"""The table of sampling parameters, and the random number of (seed, position)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jackfield.hookspecs import RowOpen
from jackfield.layers.sampler import GREEDY_BELOW, SamplingTable, uniform

SEEDS = st.integers(0, 2**64 - 1)


def opened(row: int, **changes: Any) -> RowOpen:
    fields: dict[str, Any] = {"temperature": 0.7, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 1, **changes}
    return RowOpen(row=row, uid=row, history=np.zeros(1, np.int32), **fields)


def draw(seeds: list[int], positions: list[int]) -> np.ndarray[Any, Any]:
    return uniform(np.array(seeds, dtype=np.uint64), np.array(positions, dtype=np.int64))


def reference(seed: int, position: int) -> float:
    """The same hash in Python's integers."""
    mask, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        return z ^ (z >> 31)

    return (mix((mix((seed + golden) & mask) + (position + 1) * golden) & mask) >> 11) / 2**53


@given(SEEDS, st.integers(0, 2**31))
def test_the_hash_is_the_documented_one(seed: int, position: int) -> None:
    (got,) = draw([seed], [position])
    assert got == reference(seed, position)
    assert 0 <= got < 1


@given(st.lists(st.tuples(SEEDS, st.integers(0, 2**20)), min_size=1, max_size=20))
def test_a_number_depends_on_seed_and_position_alone(pairs: list[tuple[int, int]]) -> None:
    together = draw([seed for seed, _ in pairs], [position for _, position in pairs])
    assert together.tolist() == [draw([seed], [position])[0] for seed, position in pairs]


def test_numbers_are_even_and_uncorrelated_over_seeds_and_positions() -> None:
    seeds, positions = np.meshgrid(np.arange(300), np.arange(300))
    grid = uniform(seeds.ravel().astype(np.uint64), positions.ravel()).reshape(300, 300)
    assert len(np.unique(grid)) == grid.size
    counts = np.histogram(grid, bins=100, range=(0, 1))[0]
    expected = grid.size / 100
    assert ((counts - expected) ** 2 / expected).sum() < 150  # chi-square with 99 degrees of freedom, p under 0.001
    flat = grid - 0.5
    for a, b in ((flat[1:], flat[:-1]), (flat[:, 1:], flat[:, :-1]), (flat[1:, 1:], flat[:-1, :-1])):
        assert abs((a * b).mean() * 12) < 0.015  # five standard deviations of a correlation of 90,000 pairs


def test_rows_come_in_the_asked_order() -> None:
    table = SamplingTable(8, 100, device="cpu")
    table.open(opened(3, temperature=0.5, top_k=7, top_p=0.9, min_p=0.1, seed=11))
    table.open(opened(5, temperature=0.0, seed=2**64 - 1))
    rows = table.rows(np.array([5, 3], dtype=np.int32), np.array([40, 20]))
    assert rows.temperature.tolist() == [0.0, 0.5]
    assert rows.top_k.tolist() == [100, 7]
    assert rows.top_p.tolist() == pytest.approx([1.0, 0.9])
    assert rows.min_p.tolist() == pytest.approx([0.0, 0.1])
    assert rows.uniform.tolist() == [reference(2**64 - 1, 40), reference(11, 20)]
    assert not rows.greedy
    types = (rows.temperature.dtype, rows.top_k.dtype, rows.top_p.dtype, rows.min_p.dtype, rows.uniform.dtype)
    assert types == (torch.float32, torch.int32, torch.float32, torch.float32, torch.float64)
    assert table.rows(np.array([5], dtype=np.int32), np.array([0])).greedy


@pytest.mark.parametrize(("asked", "meant"), [(0, 100), (-1, 100), (1, 1), (10**9, 100), (100, 100), (99, 99)])
def test_b63_top_k_off_is_off(asked: int, meant: int) -> None:
    table = SamplingTable(2, 100, device="cpu")
    table.open(opened(1, top_k=asked))
    assert table.rows(np.array([1], dtype=np.int32), np.array([0])).top_k.tolist() == [meant]


@pytest.mark.parametrize("temperature", [0.0, 1e-6, 1e-300, GREEDY_BELOW / 2])
def test_b62_tiny_temperatures_are_greedy(temperature: float) -> None:
    table = SamplingTable(2, 100, device="cpu")
    table.open(opened(1, temperature=temperature))
    assert table.rows(np.array([1], dtype=np.int32), np.array([0])).greedy


def test_a_row_that_is_opened_again_has_nothing_of_the_one_before() -> None:
    table = SamplingTable(4, 100, device="cpu")
    table.open(opened(2, temperature=0.3, top_k=5, top_p=0.5, min_p=0.2, seed=9))
    table.close(2)
    table.open(opened(2, temperature=1.0, seed=4))
    rows = table.rows(np.array([2], dtype=np.int32), np.array([6]))
    assert (rows.temperature.tolist(), rows.top_k.tolist()) == ([1.0], [100])
    assert (rows.top_p.tolist(), rows.min_p.tolist(), rows.uniform.tolist()) == ([1.0], [0.0], [reference(4, 6)])


def test_rows_must_be_open() -> None:
    table = SamplingTable(4, 100, device="cpu")
    with pytest.raises(ValueError, match=r"rows \[2\]"):
        table.rows(np.array([2], dtype=np.int32), np.array([0]))
    with pytest.raises(ValueError, match="row 2"):
        table.close(2)
    table.open(opened(2))
    with pytest.raises(ValueError, match="row 2"):
        table.open(opened(2))


def test_later_changes_of_the_table_do_not_reach_rows_already_taken() -> None:
    table = SamplingTable(4, 100, device="cpu")
    table.open(opened(1, temperature=0.5))
    rows = table.rows(np.array([1], dtype=np.int32), np.array([0]))
    table.close(1)
    table.open(opened(1, temperature=2.0))
    assert rows.temperature.tolist() == [0.5]
