"""Sampling against a slow float64 twin, its frequencies and edge cases, and the independence of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import SamplingRows
from jackfield.layers.noise import uniforms
from jackfield.layers.sampling import race, sample

VOCAB = 40
LARGE = 49_152  # the vocabulary of the embedded model


def rows(*parameters: dict[str, Any]) -> SamplingRows:
    """One dict a row; what it leaves out is off."""
    full = [{"t": 1.0, "k": 2**31 - 1, "p": 1.0, "m": 0.0, "s": 0, **one} for one in parameters]
    temperature = torch.tensor([one["t"] for one in full], dtype=torch.float32)
    return SamplingRows(
        temperature=temperature,
        top_k=torch.tensor([one["k"] for one in full], dtype=torch.int32),
        top_p=torch.tensor([one["p"] for one in full], dtype=torch.float32),
        min_p=torch.tensor([one["m"] for one in full], dtype=torch.float32),
        stream=torch.tensor([one["s"] for one in full], dtype=torch.int64),
        greedy=not temperature.any(),
    )


def some_streams(n: int, seed: int = 0) -> list[int]:
    """These numbers are spread over all 64 bits."""
    return torch.randint(-(2**63), 2**63 - 1, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def exponential(stream: int, token: int) -> float:
    """-log of the token's number, in Python's integers and floats."""
    mask = 2**64 - 1
    z = (stream + (token + 1) * 0x9E3779B97F4A7C15) & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return -math.log((((z ^ (z >> 31)) >> 12) + 0.5) / 2**52)


def survivors(logits: list[float], t: float, k: int, p: float, m: float) -> tuple[dict[int, float], float]:
    """(probability of each token that the filters leave, distance of the nearest token from a filter's edge)."""
    largest = max(logits)
    weights = [math.exp((x - largest) / t) for x in logits]
    probs = [w / math.fsum(weights) for w in weights]
    order = sorted(range(len(probs)), key=lambda i: -logits[i])
    top = probs[order[0]]
    kept: dict[int, float] = {}
    before = 0.0
    margin = math.inf
    for rank, i in enumerate(order):
        if rank and p < 1:
            margin = min(margin, abs(before - p))
        if rank and m > 0:
            margin = min(margin, abs(probs[i] - m * top))
        if rank < k and before <= p and probs[i] >= m * top:
            kept[i] = probs[i]
        before += probs[i]
    return kept, margin


def twin(logits: list[float], t: float, k: int, p: float, m: float, s: int) -> tuple[int, float]:
    """(token, distance of the nearest decision from its edge), in plain Python."""
    kept, margin = survivors(logits, t, k, p, m)
    scores = {i: prob / exponential(s, i) for i, prob in kept.items()}
    first, *others = sorted(scores, key=lambda i: -scores[i])
    if others:
        margin = min(margin, 1 - scores[others[0]] / scores[first])
    return first, margin


def drawn(logits: torch.Tensor, streams: Sequence[int], **one: Any) -> set[int]:
    """Tokens drawn from one row of logits [1, vocab] over many streams."""
    many = rows(*({**one, "s": s} for s in streams))
    return set(sample(logits.expand(len(streams), -1), many).tolist())


STREAMS = some_streams(200)


@st.composite
def parameters(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "t": draw(st.floats(0.0625, 5.0, width=32)),
        "k": draw(st.sampled_from([1, 2, 5, VOCAB, VOCAB, 2**31 - 1])),
        "p": draw(st.sampled_from([1.0, 1.0, 0.9, 0.5, 0.125])),
        "m": draw(st.sampled_from([0.0, 0.0, 0.0625, 0.5])),
        "s": draw(st.integers(-(2**63), 2**63 - 1)),
    }


@given(st.integers(0, 2**31), parameters())
@settings(max_examples=300, deadline=None)
def test_equals_the_slow_twin(seed: int, one: dict[str, Any]) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(seed)) * 4
    expected, margin = twin(logits[0].tolist(), **one)
    if margin > 1e-5:  # nearer to an edge, float32 may fall on either side
        assert sample(logits, rows(one)).tolist() == [expected]


@pytest.mark.parametrize("t", [1e-45, 1e-38, 1e-30, 1e-6, 1e-4])
@pytest.mark.parametrize("filters", [{}, {"k": 5}, {"p": 0.9}, {"m": 0.1}, {"p": 1e-4}])
def test_b62_a_tiny_temperature_acts_greedy_and_overflows_nothing(t: float, filters: dict[str, Any]) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(1)) * 1e3
    assert drawn(logits, STREAMS, t=t, **filters) == {int(logits.argmax())}


def test_b62_tiny_and_large_parameters_leave_the_neighbours_alone() -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(2)).repeat(5, 1)
    odd = [{"t": 1e-6}, {"t": 1e30}, {"p": 1e-4}, {"t": 0.0}]
    for stream in STREAMS[:20]:
        normal = {"t": 0.8, "s": stream}
        got = sample(logits, rows(normal, *odd)).tolist()
        assert got[0] == int(sample(logits[:1], rows(normal)))
        assert got[1] == got[3] == got[4] == int(logits[0].argmax())


@pytest.mark.parametrize("one", [{"p": 0.0}, {"k": 1}, {"m": 1.0}, {"p": 1e-4, "m": 1.0}])
def test_b63_the_narrowest_filter_keeps_exactly_the_most_likely(one: dict[str, Any]) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(3))
    assert drawn(logits, STREAMS, **one) == {int(logits.argmax())}


@pytest.mark.parametrize("one", [{}, {"k": 2**31 - 1}, {"k": VOCAB}])
def test_b63_filters_that_are_off_leave_every_token_possible(one: dict[str, Any]) -> None:
    assert drawn(torch.zeros(1, VOCAB), some_streams(1000), **one) == set(range(VOCAB))


@pytest.mark.parametrize("one", [{}, {"k": 10}, {"p": 0.99}, {"m": 1e-3}, {"t": 100.0}, {"t": 1e30, "k": 10}])
def test_masked_tokens_are_never_drawn(one: dict[str, Any]) -> None:
    logits = torch.full((1, VOCAB), -torch.inf)
    logits[0, [3, 11, 39]] = torch.tensor([0.0, 1.0, 0.5])
    assert drawn(logits, STREAMS, **one) == {3, 11, 39}


def test_a_token_that_is_left_alone_is_drawn_whatever_its_number() -> None:
    logits = torch.full((1, LARGE), -torch.inf)
    logits[0, 40_000] = -7.0
    assert drawn(logits, STREAMS) == drawn(logits, STREAMS[:20], k=3) == {40_000}


@pytest.mark.parametrize(
    "one",
    [{"t": 0.7}, {"t": 2.0}, {"t": 1.5, "k": 6}, {"p": 0.8}, {"m": 0.05}, {"t": 1.2, "k": 9, "p": 0.9, "m": 0.02}],
)
def test_frequencies_are_the_probabilities(one: dict[str, Any]) -> None:
    """Chi-square over many streams; what a filter drops is never drawn, what it leaves is renormalised."""
    n = 20_000
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(6)) * 2
    given_rows = rows(*({**one, "s": s} for s in some_streams(n, seed=7)))
    counts = torch.bincount(sample(logits.expand(n, -1), given_rows), minlength=VOCAB).tolist()
    kept, _ = survivors(logits[0].tolist(), **{"t": 1.0, "k": VOCAB, "p": 1.0, "m": 0.0, **one})
    assert sum(counts[i] for i in kept) == n
    total = math.fsum(kept.values())
    expected = {i: n * prob / total for i, prob in kept.items()}
    common = [i for i in kept if expected[i] >= 5]
    bins = [(float(counts[i]), expected[i]) for i in common]
    rare = sum(expected[i] for i in kept if expected[i] < 5)
    if rare >= 5:
        bins.append((n - sum(count for count, _ in bins), rare))
    freedom = len(bins) - 1
    statistic = sum((count - mean) ** 2 / mean for count, mean in bins)
    assert statistic < freedom + 3.1 * math.sqrt(2 * freedom) + 6  # Cornish and Fisher's bound for p under 0.001


def test_unlikely_tokens_are_drawn_as_often_as_they_should_be() -> None:
    """One token has 0.9; the others share 0.1. A coarse random number would favour or starve them."""
    n = 1000
    logits = torch.full((1, LARGE), math.log(0.1 / (LARGE - 1)))
    logits[0, 5] = math.log(0.9)
    got = sample(logits.expand(n, -1), rows(*({"s": s} for s in some_streams(n, seed=8))))
    others = int((got != 5).sum())
    assert abs(others - 0.1 * n) < 4 * math.sqrt(n * 0.1 * 0.9)
    assert len(set(got.tolist())) > 0.95 * others  # and hardly one of them twice


def test_a_filter_changes_a_draw_only_if_it_drops_the_token() -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(9)) * 2
    free = sample(logits.expand(len(STREAMS), -1), rows(*({"s": s} for s in STREAMS))).tolist()
    top = set(logits[0].topk(8).indices.tolist())
    few = sample(logits.expand(len(STREAMS), -1), rows(*({"s": s, "k": 8} for s in STREAMS))).tolist()
    assert set(few) == top
    assert [b for a, b in zip(free, few, strict=True) if a in top] == [a for a in free if a in top]


def inverse_cdf(logits: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The way of drawing that the race is compared with: several draws a row, [n, vocab], [n, m] -> [n, m]."""
    cdf = logits.softmax(dim=-1).double().cumsum(dim=-1)
    return torch.searchsorted(cdf, uniform * cdf[:, -1:], right=True)


def test_rounding_differences_hardly_change_a_draw() -> None:
    """Logits that differ by 1e-6 of themselves, as those of a batch and of a row alone may. An inverse CDF moves every
    border with the sum before it, and about one draw in a hundred; the race changes only where the two best tie."""
    n, draws = 400, 100
    generator = torch.Generator().manual_seed(10)
    logits = torch.randn(n, LARGE, generator=generator) * 3
    noisy = logits * (1 + 1e-6 * torch.randn(n, LARGE, generator=generator))
    streams = some_streams(n, seed=11)
    parameters = rows(*({"s": s} for s in streams))
    changed = int((sample(logits, parameters) != sample(noisy, parameters)).sum())
    several = uniforms(torch.tensor(streams), torch.arange(draws))
    by_cdf = int((inverse_cdf(logits, several) != inverse_cdf(noisy, several)).sum()) / draws
    assert changed <= 1
    assert by_cdf > 2  # of 400, on average


def test_large_rows_do_not_depend_on_their_neighbours_either() -> None:
    """Rows of this size are drawn in several parts."""
    logits = torch.randn(6, LARGE, generator=torch.Generator().manual_seed(12)) * 3
    kinds: list[dict[str, Any]] = [{}, {"k": 50}, {"t": 0.0}, {"p": 0.9}, {"m": 0.01}, {"t": 0.7, "k": 9, "p": 0.5}]
    several = [{**one, "s": s} for one, s in zip(kinds, STREAMS, strict=False)]
    together = sample(logits, rows(*several)).tolist()
    assert together == [int(sample(logits[i : i + 1], rows(one))) for i, one in enumerate(several)]
    assert together[2] == int(logits[2].argmax())


def test_logits_and_parameters_are_left_as_they_were() -> None:
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(13))
    parameters = rows({"k": 5, "m": 0.1}, {})
    before = [logits.clone(), *(x.clone() for x in vars(parameters).values() if isinstance(x, torch.Tensor))]
    sample(logits, parameters)
    after = [logits, *(x for x in vars(parameters).values() if isinstance(x, torch.Tensor))]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_no_rows_no_tokens() -> None:
    assert sample(torch.empty(0, VOCAB), rows()).shape == (0,)
    empty = SamplingRows(**{**vars(rows()), "greedy": False})
    assert sample(torch.empty(0, VOCAB), empty).shape == (0,)


def test_a_race_never_goes_to_a_token_without_weight_and_a_tie_to_the_lowest_id() -> None:
    least, most = 2.0**-53, 1 - 2.0**-53
    weights = torch.tensor([[0.0, 1.0, 0.0, 1e-30, 0.0], [0.0, 0.5, 0.5, 0.5, 0.0]])
    numbers = torch.tensor([[most, least, most, least, most], [most, 0.3, 0.4, 0.4, most]], dtype=torch.float64)
    assert race(weights, numbers).tolist() == [1, 2]


def test_top_k_among_equals_keeps_the_lowest_ids() -> None:
    assert drawn(torch.zeros(1, 20_000), STREAMS[:40], k=3) == {0, 1, 2}
