"""The random numbers of a draw: slow twins in Python's integers and in NumPy, and that they pass for random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from jackfield.layers.noise import streams, uniforms

SEEDS = st.integers(0, 2**64 - 1)
STREAMS = st.integers(-(2**63), 2**63 - 1)
MASK, GOLDEN = 2**64 - 1, 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def numpy_uniforms(stream: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
    z = stream.astype(np.uint64)[:, None] + (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    z ^= z >> np.uint64(31)
    return ((z >> np.uint64(11)) | np.uint64(1)).astype(np.float64) * 2.0**-53


def make(seeds: list[int], positions: list[int]) -> NDArray[np.int64]:
    return streams(np.array(seeds, dtype=np.uint64), np.array(positions, dtype=np.int64))


@given(SEEDS, st.integers(0, 2**31))
def test_a_stream_is_the_documented_hash(seed: int, position: int) -> None:
    (got,) = make([seed], [position]).tolist()
    assert got & MASK == mix(mix((seed + GOLDEN) & MASK) + (position + 1) * GOLDEN & MASK)


@given(STREAMS, st.integers(0, 2**31))
def test_a_number_is_the_documented_hash(stream: int, token: int) -> None:
    got = uniforms(torch.tensor([stream]), torch.tensor([token])).item()
    assert got == (mix(stream + (token + 1) * GOLDEN & MASK) // 2**12 + 0.5) / 2**52
    assert 0 < got < 1


@given(st.lists(STREAMS, min_size=1, max_size=5), st.integers(1, 1000))
def test_equals_the_twin_in_numpy(stream: list[int], vocab: int) -> None:
    got = uniforms(torch.tensor(stream), torch.arange(vocab))
    expected = numpy_uniforms(np.array(stream, dtype=np.int64), np.arange(vocab))
    assert got.dtype == torch.float64
    assert got.shape == (len(stream), vocab)
    assert got.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize(("bits", "number"), [(0, 2.0**-53), (2**64 - 1, 1 - 2.0**-53), (2**63, 0.5 + 2.0**-53)])
def test_the_ends_are_out_of_reach(bits: int, number: float) -> None:
    """Streams that were chosen so that the hash of token 0 is all zeros, all ones, or the top bit alone."""
    unmixed = bits
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        source = unmixed
        for _ in range(64 // shift):
            unmixed = source ^ (unmixed >> shift)
        unmixed = unmixed * pow(factor, -1, 2**64) & MASK
    assert mix(unmixed) == bits
    stream = (unmixed - GOLDEN) & MASK
    stream = stream - 2**64 if stream >= 2**63 else stream
    assert uniforms(torch.tensor([stream]), torch.tensor([0])).item() == number
    assert -float(np.log(number)) > 0


@given(st.lists(st.tuples(SEEDS, st.integers(0, 2**20)), min_size=1, max_size=20))
def test_a_stream_depends_on_seed_and_position_alone(pairs: list[tuple[int, int]]) -> None:
    together = make([seed for seed, _ in pairs], [position for _, position in pairs])
    assert together.tolist() == [make([seed], [position])[0] for seed, position in pairs]


@given(st.lists(STREAMS, min_size=1, max_size=5), st.lists(st.integers(0, 2**20), min_size=1, max_size=20))
def test_a_number_depends_on_stream_and_token_alone(stream: list[int], tokens: list[int]) -> None:
    together = uniforms(torch.tensor(stream), torch.tensor(tokens))
    alone = [[uniforms(torch.tensor([s]), torch.tensor([t])).item() for t in tokens] for s in stream]
    assert together.tolist() == alone
    by_row = uniforms(torch.tensor(stream), torch.tensor([tokens] * len(stream)))
    assert by_row.tolist() == alone


def assert_random(grid: NDArray[np.float64]) -> None:
    """Even over (0, 1), and free of correlation with the neighbours on both axes and the diagonal."""
    assert len(np.unique(grid)) == grid.size
    counts = np.histogram(grid, bins=100, range=(0, 1))[0]
    expected = grid.size / 100
    assert ((counts - expected) ** 2 / expected).sum() < 150  # chi-square with 99 degrees of freedom, p under 0.001
    flat = grid - 0.5
    for a, b in ((flat[1:], flat[:-1]), (flat[:, 1:], flat[:, :-1]), (flat[1:, 1:], flat[:-1, :-1])):
        assert abs((a * b).mean() * 12) < 0.015  # five standard deviations of a correlation of 90,000 pairs


def square(**fixed: Any) -> NDArray[np.float64]:
    """300 by 300 numbers over two of seed, position and token; the third is fixed."""
    axes = iter(np.meshgrid(np.arange(300), np.arange(300), indexing="ij"))
    seed, position, token = (
        np.full((300, 300), fixed[name]) if name in fixed else next(axes) for name in ("seed", "position", "token")
    )
    stream = torch.from_numpy(streams(seed.ravel().astype(np.uint64), position.ravel()))
    return uniforms(stream, torch.from_numpy(token.reshape(-1, 1))).numpy().reshape(300, 300)


@pytest.mark.parametrize("fixed", [{"seed": 0}, {"seed": 2**40}, {"position": 17}, {"token": 0}, {"token": 49151}])
def test_numbers_pass_for_random_over_seeds_positions_and_tokens(fixed: dict[str, int]) -> None:
    assert_random(square(**fixed))
