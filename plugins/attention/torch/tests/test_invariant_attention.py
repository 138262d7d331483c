"""Deterministic inference in attention: exact enough, and the same bits however a sequence is cut, batched and placed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import (
    CORE_LAYOUTS,
    NHD_PAGED,
    AttentionBackend,
    KVLayout,
)
from jackfield.testing.attention_cases import AttentionCase, PreparedCase, check, prepare
from jackfield.testing.attention_sequences import outputs
from jackfield.testing.conformance import AttentionConformance
from jackfield_attention_torch.backend import TorchAttention
from jackfield_attention_torch.invariant import InvariantAttention
from jackfield_attention_torch.tiles import TILE
from jackfield_attention_torch.torch import jackfield_attention_backend

MIXED = ((12, 1), (0, 9), (7, 5), (200, 1), (0, 1))


class TestConformance(AttentionConformance):
    """The backend that the context's `deterministic` chooses, held to all checks."""

    plugin = "torch"

    @classmethod
    def make(cls, **fields: Any) -> Any:
        return super().make(**{**fields, "deterministic": True})


def test_more_heads_on_one_kv_head_than_the_largest_block() -> None:
    check(AttentionCase(lengths=MIXED, layout=NHD_PAGED, num_heads=260, num_kv_heads=1), InvariantAttention)


def test_the_context_decides() -> None:
    context = prepare(AttentionCase(lengths=((0, 3),), layout=NHD_PAGED)).context
    assert isinstance(jackfield_attention_backend(context), TorchAttention)
    assert isinstance(jackfield_attention_backend(replace(context, deterministic=True)), InvariantAttention)


class Sequences:
    """Whole sequences with fixed queries, keys and values, fed to a backend in steps of any kind."""

    def __init__(self, lengths: list[int], *, layout: KVLayout, page_size: int, seed: int, **case: Any) -> None:
        self.prepared: PreparedCase = prepare(
            AttentionCase(lengths=[(0, n) for n in lengths], layout=layout, page_size=page_size, seed=seed, **case)
        )

    def outputs(self, backend: AttentionBackend, steps: list[list[tuple[int, int]]]) -> list[torch.Tensor]:
        return outputs(self.prepared, backend, steps)


@st.composite
def cuts(draw: st.DrawFn) -> tuple[list[int], list[list[tuple[int, int]]]]:
    """Lengths of some sequences, and batches that advance them to their ends in any order and in pieces of any size."""
    lengths = draw(st.lists(st.integers(1, 2 * TILE + 30), min_size=1, max_size=5))
    done, steps = [0] * len(lengths), []
    while True:
        open_ = [i for i, n in enumerate(lengths) if done[i] < n]
        if not open_:
            return lengths, steps
        chosen = draw(st.lists(st.sampled_from(open_), min_size=1, unique=True))
        step = []
        for i in chosen:
            left = lengths[i] - done[i]
            new = min(left, draw(st.sampled_from([1, 2, 3, 17, 100, left])))
            done[i] += new
            step.append((i, new))
        steps.append(step)


@settings(max_examples=25)
@given(
    cuts(),
    st.sampled_from([1, 3, 16]),
    st.sampled_from(list(CORE_LAYOUTS.values())),
    st.sampled_from([None, None, 1, 40, 200]),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    st.sampled_from([(4, 2), (3, 1), (2, 2)]),
    st.integers(0, 2**32 - 1),
)
def test_the_bits_are_those_of_each_sequence_alone(
    cut: tuple[list[int], list[list[tuple[int, int]]]],
    page_size: int,
    layout: KVLayout,
    window: int | None,
    dtype: torch.dtype,
    heads: tuple[int, int],
    seed: int,
) -> None:
    lengths, steps = cut
    sequences = Sequences(
        lengths,
        layout=layout,
        page_size=page_size,
        seed=seed,
        window=window,
        dtype=dtype,
        num_heads=heads[0],
        num_kv_heads=heads[1],
    )
    backend = InvariantAttention(sequences.prepared.context)
    found = sequences.outputs(backend, steps)
    alone = sequences.outputs(backend, [[(i, n)] for i, n in enumerate(lengths)])
    for mine, theirs in zip(found, alone, strict=True):
        assert not torch.isnan(mine).any()
        assert torch.equal(mine, theirs)


def test_the_plain_backend_does_not_do_that() -> None:
    """The property above can fail: otherwise the slower backend would be for nothing."""
    sequences = Sequences([200, 77], layout=NHD_PAGED, page_size=1, seed=1)
    backend = TorchAttention(sequences.prepared.context)
    whole = sequences.outputs(backend, [[(0, 200)], [(1, 77)]])
    pieces = sequences.outputs(backend, [[(0, 100), (1, 77)], *([(0, 1)] for _ in range(100))])
    assert not all(torch.equal(a, b) for a, b in zip(whole, pieces, strict=True))
