"""Sampling against a slow float64 twin, its edge cases, and the independence of rows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import SamplingRows
from jackfield_ops_torch.sampling import inverse_cdf, sample

VOCAB = 40


def rows(*parameters: dict[str, Any]) -> SamplingRows:
    """One dict a row; what it leaves out is off."""
    full = [{"t": 1.0, "k": VOCAB, "p": 1.0, "m": 0.0, "u": 0.5, **one} for one in parameters]
    temperature = torch.tensor([one["t"] for one in full], dtype=torch.float32)
    return SamplingRows(
        temperature=temperature,
        top_k=torch.tensor([one["k"] for one in full], dtype=torch.int32),
        top_p=torch.tensor([one["p"] for one in full], dtype=torch.float32),
        min_p=torch.tensor([one["m"] for one in full], dtype=torch.float32),
        uniform=torch.tensor([one["u"] for one in full], dtype=torch.float64),
        greedy=not temperature.any(),
    )


def twin(logits: list[float], t: float, k: int, p: float, m: float, u: float) -> tuple[int, float]:
    """(token, distance of the draw from the nearest edge of its interval), in plain Python."""
    largest = max(logits)
    weights = [math.exp((x - largest) / t) for x in logits]
    probs = [w / math.fsum(weights) for w in weights]
    order = list(range(len(probs)))
    if k < len(probs) or p < 1 or m > 0:
        order.sort(key=lambda i: -probs[i])
    kept: list[tuple[int, float]] = []
    before = 0.0
    margin = math.inf
    for rank, i in enumerate(order):
        if rank and p < 1:
            margin = min(margin, abs(before - p))
        if m > 0:
            margin = min(margin, abs(probs[i] - m * probs[order[0]]) if rank else math.inf)
        if rank < k and before <= p and probs[i] >= m * probs[order[0]]:
            kept.append((i, probs[i]))
        before += probs[i]
    target = u * math.fsum(x for _, x in kept)
    total = 0.0
    for i, x in kept:
        margin = min(margin, abs(total - target) if total else math.inf, abs(total + x - target))
        if target < total + x:
            return i, margin
        total += x
    return kept[-1][0], 0.0


@st.composite
def parameters(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "t": draw(st.floats(0.0625, 5.0, width=32)),
        "k": draw(st.sampled_from([1, 2, 5, VOCAB, VOCAB])),
        "p": draw(st.sampled_from([1.0, 1.0, 0.9, 0.5, 0.125])),
        "m": draw(st.sampled_from([0.0, 0.0, 0.0625, 0.5])),
        "u": draw(st.floats(0, 1, exclude_max=True)),
    }


@given(st.integers(0, 2**31), parameters())
@settings(max_examples=300, deadline=None)
def test_equals_the_slow_twin(seed: int, one: dict[str, Any]) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(seed)) * 4
    expected, margin = twin(logits[0].tolist(), **one)
    if margin > 1e-5:  # nearer to an edge, float32 may fall on either side
        assert sample(logits, rows(one)).tolist() == [expected]


@given(st.integers(0, 2**31), st.lists(parameters(), min_size=2, max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_a_row_does_not_depend_on_its_neighbours(seed: int, several: list[dict[str, Any]], random: Any) -> None:
    logits = torch.randn(len(several), VOCAB, generator=torch.Generator().manual_seed(seed)) * 4
    several[0]["t"] = 0.0
    together = sample(logits, rows(*several)).tolist()
    alone = [int(sample(logits[i : i + 1], rows(one))) for i, one in enumerate(several)]
    order = list(range(len(several)))
    random.shuffle(order)
    shuffled = sample(logits[order], rows(*(several[i] for i in order))).tolist()
    assert together == alone
    assert shuffled == [together[i] for i in order]


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    logits = torch.zeros(2, VOCAB)
    logits[:, [7, 30]] = 3.0
    assert sample(logits, rows({"t": 0.0}, {"t": 0.0})).tolist() == [7, 7]
    assert sample(logits, rows({"t": 0.0}, {"t": 1.0, "k": 1})).tolist() == [7, 7]


@pytest.mark.parametrize("t", [1e-45, 1e-38, 1e-30, 1e-6, 1e-4])
@pytest.mark.parametrize("filters", [{}, {"k": 5}, {"p": 0.9}, {"m": 0.1}, {"p": 1e-4}])
def test_b62_a_tiny_temperature_acts_greedy_and_overflows_nothing(t: float, filters: dict[str, Any]) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(1)) * 1e3
    for u in (0.0, 0.5, 1 - 2**-53):
        assert sample(logits, rows({"t": t, "u": u, **filters})).tolist() == [int(logits.argmax())]


def test_b62_tiny_and_large_parameters_leave_the_neighbours_alone() -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(2)).repeat(5, 1)
    normal = {"t": 0.8, "u": 0.3}
    odd = [{"t": 1e-6}, {"t": 1e30}, {"p": 1e-4}, {"t": 0.0}]
    got = sample(logits, rows(normal, *odd)).tolist()
    assert got[0] == int(sample(logits[:1], rows(normal)))
    assert got[1] == got[3] == got[4] == int(logits[0].argmax())


@pytest.mark.parametrize("one", [{"p": 0.0}, {"k": 1}, {"m": 1.0}, {"p": 1e-4, "m": 1.0}])
def test_b63_the_narrowest_filter_keeps_exactly_the_most_likely(one: dict[str, Any]) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(3))
    for u in (0.0, 0.4, 1 - 2**-53):
        assert sample(logits, rows({**one, "u": u})).tolist() == [int(logits.argmax())]


def test_b63_filters_that_are_off_leave_every_token_possible() -> None:
    logits = torch.zeros(1, VOCAB)
    drawn = {int(sample(logits, rows({"u": (i + 0.5) / VOCAB}))) for i in range(VOCAB)}
    assert drawn == set(range(VOCAB))
    large = {int(sample(logits, rows({"u": (i + 0.5) / VOCAB, "k": 2**31 - 1}))) for i in range(VOCAB)}
    assert large == drawn


@pytest.mark.parametrize("t", [0.0, 1.0])
@pytest.mark.parametrize("filters", [{}, {"k": 3, "p": 0.5, "m": 0.1}])
@pytest.mark.parametrize("bad", ["one nan", "all nan", "one inf", "all -inf"])
def test_a_broken_row_is_shown_and_its_neighbours_are_not_touched(t: float, filters: dict[str, Any], bad: str) -> None:
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(4))
    good = sample(logits, rows(*[{"t": t, **filters}] * 3)).tolist()
    match bad:
        case "one nan":
            logits[1, 5] = torch.nan
        case "all nan":
            logits[1] = torch.nan
        case "one inf":
            logits[1, 5] = torch.inf
        case "all -inf":
            logits[1] = -torch.inf
    assert sample(logits, rows(*[{"t": t, **filters}] * 3)).tolist() == [good[0], -1, good[2]]


def test_masked_tokens_are_never_drawn() -> None:
    logits = torch.full((1, VOCAB), -torch.inf)
    logits[0, [3, 11, 39]] = torch.tensor([0.0, 1.0, 0.5])
    for u in (0.0, 0.2, 0.5, 0.99, 1 - 2**-53):
        for one in ({}, {"k": 10}, {"p": 0.99}, {"t": 100.0}):
            assert int(sample(logits, rows({"u": u, **one}))) in (3, 11, 39)


def test_frequencies_are_the_probabilities() -> None:
    """An even grid of draws hits each token in proportion, exactly to the grid's step."""
    n = 5000
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(6)) * 2
    grid = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    for one in ({"t": 0.7}, {"t": 1.5, "k": 6}):
        given_rows = rows(*[one] * n)
        given_rows = SamplingRows(**{**vars(given_rows), "uniform": grid})
        counts = torch.bincount(sample(logits.expand(n, -1), given_rows), minlength=VOCAB)
        probs = (logits[0].double() / one["t"]).softmax(-1)
        if "k" in one:
            keep = probs.argsort(descending=True)[:6]
            probs = torch.zeros_like(probs).index_copy(0, keep, probs[keep])
            probs = probs / probs.sum()
        assert (counts / n - probs).abs().max() <= 2 / n


def test_no_rows_no_tokens() -> None:
    assert sample(torch.empty(0, VOCAB), rows()).shape == (0,)
    empty = SamplingRows(**{**vars(rows()), "greedy": False})
    assert sample(torch.empty(0, VOCAB), empty).shape == (0,)


def test_inverse_cdf_never_returns_a_token_without_weight() -> None:
    weights = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.0]])
    for u, expected in ((0.0, 1), (0.3, 1), (0.34, 3), (1 - 2**-53, 3)):
        assert inverse_cdf(weights, torch.tensor([u], dtype=torch.float64)).tolist() == [expected]


def test_top_p_keeps_a_token_while_the_sum_before_it_is_at_most_p() -> None:
    logits = torch.full((1, VOCAB), -torch.inf)
    logits[0, [4, 9]] = 1.0
    assert sample(logits, rows({"p": 0.5, "u": 0.75})).tolist() == [9]
    assert sample(logits, rows({"p": 0.4999, "u": 0.75})).tolist() == [4]


def test_top_k_among_equals_keeps_the_lowest_ids() -> None:
    logits = torch.zeros(1, 20_000)
    drawn = {int(sample(logits, rows({"k": 3, "u": u}))) for u in (0.0, 0.4, 0.9)}
    assert drawn == {0, 1, 2}


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=50), st.integers(1, 50))
@settings(max_examples=100, deadline=None)
def test_the_largest_uniform_finds_the_last_token_with_weight(weights: list[float], zeros: int) -> None:
    weights = [w + 1e-3 for w in weights]
    row = torch.tensor([weights + [0.0] * zeros])
    assert inverse_cdf(row, torch.tensor([1 - 2**-53], dtype=torch.float64)).tolist() == [len(weights) - 1]
