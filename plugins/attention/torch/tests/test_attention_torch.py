"""The torch backend against the float64 reference: every length, size, layout and feature that its manifest claims."""

from __future__ import annotations

import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import jackfield_attention_torch
from jackfield.hookspecs import CORE_LAYOUTS, HND_PAGED, NHD_PAGED, KVLayout
from jackfield.testing.attention_cases import AttentionCase, check, prepare, run
from jackfield_attention_torch.backend import TorchAttention

PREFILL = ((0, 1), (0, 7), (0, 16), (0, 33))
CHUNK = ((5, 3), (16, 16), (31, 2), (64, 1), (16, 16))
DECODE = ((0, 1), (15, 1), (16, 1), (40, 1), (41, 1), (3, 1))
MIXED = ((12, 1), (0, 9), (7, 5), (20, 1), (0, 1))
BATCHES = {"prefill": PREFILL, "chunk": CHUNK, "decode": DECODE, "mixed": MIXED}
layouts = pytest.mark.parametrize("layout", CORE_LAYOUTS.values(), ids=CORE_LAYOUTS)


@layouts
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("lengths", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(("window", "soft_cap"), [(None, None), (8, None), (None, 2.0), (8, 2.0), (1, None)])
def test_equals_the_reference(
    layout: KVLayout,
    page_size: int,
    lengths: tuple[tuple[int, int], ...],
    window: int | None,
    soft_cap: float | None,
) -> None:
    check(
        AttentionCase(lengths=lengths, layout=layout, page_size=page_size, window=window, soft_cap=soft_cap),
        TorchAttention,
    )


@layouts
@pytest.mark.parametrize("head_size", [16, 64, 80, 96, 128])
@pytest.mark.parametrize("heads", [(1, 1), (4, 4), (4, 1), (9, 3), (8, 2)])
def test_head_sizes_and_ratios(layout: KVLayout, head_size: int, heads: tuple[int, int]) -> None:
    case = AttentionCase(
        lengths=((0, 5), (11, 1), (6, 2)),
        layout=layout,
        page_size=4,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_size=head_size,
    )
    check(case, TorchAttention)
    check(case, TorchAttention, lengths=DECODE)


@layouts
@pytest.mark.parametrize("v_head_size", [8, 24])
@pytest.mark.parametrize("soft_cap", [None, 3.0])
def test_values_of_another_size_than_keys(layout: KVLayout, v_head_size: int, soft_cap: float | None) -> None:
    for lengths in BATCHES.values():
        check(
            AttentionCase(lengths=lengths, layout=layout, v_head_size=v_head_size, soft_cap=soft_cap, page_size=2),
            TorchAttention,
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("soft_cap", [None, 2.0])
def test_half_precision(dtype: torch.dtype, soft_cap: float | None) -> None:
    for lengths in BATCHES.values():
        check(AttentionCase(lengths=lengths, layout=NHD_PAGED, dtype=dtype, soft_cap=soft_cap), TorchAttention)


@pytest.mark.parametrize("window", [None, 8])
def test_non_causal_layers_see_the_whole_row(window: int | None) -> None:
    for lengths in BATCHES.values():
        check(AttentionCase(lengths=lengths, layout=HND_PAGED, window=window, causal=False), TorchAttention)


@pytest.mark.parametrize("window", [None, 8])
def test_host_lengths_may_be_upper_bounds(window: int | None) -> None:
    for lengths in BATCHES.values():
        check(AttentionCase(lengths=lengths, layout=NHD_PAGED, window=window, exact=False), TorchAttention)


def test_long_queries_under_a_soft_cap_go_block_by_block() -> None:
    case = AttentionCase(lengths=((0, 300), (20, 270)), layout=NHD_PAGED, soft_cap=2.0, num_heads=2, num_kv_heads=1)
    check(case, TorchAttention)
    check(case, TorchAttention, window=100)


def test_kv_that_an_operator_wrote_is_not_written_again() -> None:
    case = AttentionCase(lengths=MIXED, layout=NHD_PAGED, page_size=4)
    ours, theirs = prepare(case), prepare(case)
    assert torch.equal(
        run(ours, TorchAttention(ours.context)), run(theirs, TorchAttention(theirs.context), written=True)
    )


def test_several_plans_may_be_alive() -> None:
    case = AttentionCase(lengths=MIXED, layout=NHD_PAGED)
    prepared = prepare(case)
    backend = TorchAttention(prepared.context)
    wanted = run(prepared, backend)
    plans = [backend.plan(prepared.batch) for _ in range(3)]
    for plan in reversed(plans):
        out = torch.full_like(wanted, torch.nan)
        backend.attend(plan, case.layer, prepared.q, prepared.k, prepared.v, out)
        assert torch.equal(out, wanted)


def test_a_row_full_of_nan_spoils_no_neighbour() -> None:
    case = AttentionCase(lengths=((30, 1), (28, 1), (29, 1)), layout=NHD_PAGED, page_size=4)
    clean, spoilt = prepare(case), prepare(case)
    wanted = run(clean, TorchAttention(clean.context))
    spoilt.k[1], spoilt.v[1] = torch.nan, torch.nan
    found = run(spoilt, TorchAttention(spoilt.context))
    assert torch.isnan(found[1]).all()
    assert torch.equal(found[[0, 2]], wanted[[0, 2]])


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), min_size=1, max_size=6),
    page_size=st.sampled_from([1, 3, 16]),
    window=st.none() | st.integers(1, 50),
    layout=st.sampled_from(list(CORE_LAYOUTS.values())),
    exact=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_batch_equals_the_reference(
    lengths: list[tuple[int, int]], page_size: int, window: int | None, layout: KVLayout, exact: bool, seed: int
) -> None:
    check(
        AttentionCase(lengths=lengths, layout=layout, page_size=page_size, window=window, exact=exact, seed=seed),
        TorchAttention,
    )


def test_the_manifest_and_the_entry_point_agree() -> None:
    manifest = tomllib.loads(Path(jackfield_attention_torch.__file__).with_name("plugin.toml").read_text())
    (row,) = manifest["plugin"]
    (point,) = [
        p for p in entry_points(group="jackfield.attention") if p.value.startswith("jackfield_attention_torch.")
    ]
    assert (point.name, point.value) == (row["name"], "jackfield_attention_torch.torch")
    assert set(row["layouts"]) == set(CORE_LAYOUTS)
