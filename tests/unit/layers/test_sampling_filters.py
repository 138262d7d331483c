"""The fast filters against a sort of all ids, which is how they were first written: the same tokens, ties included."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import SamplingRows
from jackfield.layers import host_sampling, sampling
from jackfield.layers.host_sampling import sample_on_host
from jackfield.layers.noise import HostNoise, uniforms
from jackfield.layers.sampling import race, sample, sample_on_device
from jackfield.layers.sampling_filters import drop_top

VOCABS = [4096, 5000, 49_152]


def drop_by_sorting(weights: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> None:
    ordered, ids = weights.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(weights.shape[-1])
    before = ordered.cumsum(dim=-1, dtype=torch.float64)
    limit = before[:, -1:] * top_p[:, None]
    drop = before.sub_(ordered) > limit
    drop |= rank >= top_k[:, None]
    weights.scatter_(-1, ids, ordered.masked_fill_(drop, 0.0))


def host_weights(logits: torch.Tensor, largest: torch.Tensor, rows: SamplingRows, part: torch.Tensor) -> torch.Tensor:
    """Of one row, as the CPU's sampler has them: NumPy's exponential differs from torch's in its last bit."""
    row = host_sampling._Row(logits.shape[-1])
    row.weigh(logits[part[0]].numpy(), np.float32(largest[part[0]]), float(rows.temperature[part[0]]))
    return torch.from_numpy(row.weights)[None]


def sample_by_sorting(logits: torch.Tensor, rows: SamplingRows, weigh: Callable[..., torch.Tensor]) -> torch.Tensor:
    """`sample` row by row as it was, for rows that are not greedy and logits that are finite or -inf."""
    ids = torch.arange(logits.shape[-1])
    found = []
    for i in range(logits.shape[0]):
        part = torch.tensor([i])
        largest = logits.max(dim=-1).values
        weights = weigh(logits, largest, rows, part)
        drop_by_sorting(weights, rows.top_k[part], rows.top_p[part])
        weights.masked_fill_(weights < rows.min_p[part, None], 0.0)
        found.append(race(weights, uniforms(rows.stream[part], ids)))
    return torch.cat(found)


@st.composite
def some_logits(draw: st.DrawFn, vocab: int) -> torch.Tensor:
    """One row, from sharp to flat, with ties of every number and masked tokens."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    logits = torch.randn(vocab, generator=generator) * draw(st.sampled_from([0.0, 0.01, 1.0, 3.0, 20.0]))
    if draw(st.booleans()):
        logits = (logits * draw(st.sampled_from([1, 4, 100]))).round()  # few values: many equals
    if draw(st.booleans()):
        kept = torch.rand(vocab, generator=generator) < draw(st.sampled_from([0.001, 0.5]))
        kept[draw(st.integers(0, vocab - 1))] = True
        logits = logits.masked_fill(~kept, -torch.inf)
    return logits


def tops(vocab: int) -> tuple[st.SearchStrategy[int], st.SearchStrategy[float]]:
    edge = vocab // 64
    k = st.sampled_from([1, 2, 40, edge - 1, edge, edge + 1, vocab - 1, vocab]) | st.integers(1, vocab)
    p = st.sampled_from([1.0, 0.0, 1e-6, 0.5, 0.9, 0.95, 0.999, 0.9999999]) | st.floats(0, 1, width=32)
    return k, p


@settings(max_examples=120)
@given(st.data(), st.sampled_from(VOCABS))
def test_both_ways_leave_what_sorting_leaves(data: st.DataObject, vocab: int) -> None:
    k, p = tops(vocab)
    logits = torch.stack([data.draw(some_logits(vocab)) for _ in range(3)])
    weights = (logits - logits.max(dim=-1, keepdim=True).values).exp()
    top_k = torch.tensor([data.draw(k) for _ in range(3)], dtype=torch.int32)
    top_p = torch.tensor([data.draw(p) for _ in range(3)], dtype=torch.float32)
    expected, found = weights.clone(), weights.clone()
    drop_by_sorting(expected, top_k, top_p)
    drop_top(found, top_k, top_p)
    assert torch.equal(found, expected)


@settings(max_examples=60)
@given(st.data(), st.sampled_from(VOCABS))
def test_tokens_are_those_of_sorting(data: st.DataObject, vocab: int) -> None:
    k, p = tops(vocab)
    n = 4
    logits = torch.stack([data.draw(some_logits(vocab)) for _ in range(n)])
    rows = SamplingRows(
        temperature=torch.tensor([data.draw(st.sampled_from([0.1, 0.7, 1.0, 3.0])) for _ in range(n)]),
        top_k=torch.tensor([data.draw(k) for _ in range(n)], dtype=torch.int32),
        top_p=torch.tensor([data.draw(p) for _ in range(n)], dtype=torch.float32),
        min_p=torch.tensor([data.draw(st.sampled_from([0.0, 0.05])) for _ in range(n)], dtype=torch.float32),
        stream=torch.tensor([data.draw(st.integers(-(2**63), 2**63 - 1)) for _ in range(n)], dtype=torch.int64),
        greedy=False,
    )
    assert torch.equal(sample_on_device(logits, rows), sample_by_sorting(logits, rows, sampling._weights))
    assert torch.equal(sample_on_host(logits, rows), sample_by_sorting(logits, rows, host_weights))


@pytest.mark.parametrize("vocab", VOCABS)
def test_the_usual_filters_sort_no_vocabulary(vocab: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def sorted_all(*_: object) -> None:
        raise AssertionError("the whole vocabulary was sorted")

    monkeypatch.setattr(host_sampling, "drop_top", sorted_all)
    logits = torch.randn(6, vocab, generator=torch.Generator().manual_seed(3)) * 4
    rows = SamplingRows(
        temperature=torch.full((6,), 0.8),
        top_k=torch.tensor([50, vocab, 20, 1, 40, vocab], dtype=torch.int32),
        top_p=torch.tensor([1.0, 0.8, 0.9, 1.0, 0.5, 0.1]),
        min_p=torch.zeros(6),
        stream=torch.arange(6),
        greedy=False,
    )
    assert (sample(logits, rows) >= 0).all()


def test_the_race_of_all_goes_to_whom_the_exact_scores_name() -> None:
    """Flat and sharp rows, where the heaviest token wins hardly ever and nearly always."""
    generator = torch.Generator().manual_seed(5)
    for scale in (0.0, 0.1, 2.0, 8.0):
        logits = torch.randn(49_152, generator=generator) * scale
        row = host_sampling._Row(len(logits))
        row.weigh(logits.numpy(), np.float32(logits.max()), 1.0)
        for stream in torch.randint(-(2**63), 2**63 - 1, (40,), generator=generator).tolist():
            numbers = uniforms(torch.tensor([stream]), torch.arange(len(logits)))
            expected = int(race(torch.from_numpy(row.weights)[None], numbers))
            assert row.draw(int(logits.argmax()), len(logits), 1.0, 0.0, stream) == expected


def test_numbers_of_the_host_are_those_of_every_device() -> None:
    ids = torch.tensor([0, 1, 4096, 49_151])
    for stream in (0, 1, -1, 2**63 - 1, -(2**63)):
        expected = uniforms(torch.tensor([stream]), ids)[0]
        assert HostNoise(49_152).uniforms(stream, ids.numpy()).tolist() == expected.tolist()
