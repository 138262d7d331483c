"""The torch backend against the float64 reference: every length, size, layout and feature that its manifest claims."""

from __future__ import annotations

import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import jackfield_attention_torch
from jackfield.hookspecs import CORE_LAYOUTS, NHD_PAGED, KVLayout
from jackfield.testing.attention_cases import AttentionCase, check, prepare
from jackfield.testing.conformance import AttentionConformance
from jackfield_attention_torch import plan, tiles
from jackfield_attention_torch.backend import TorchAttention
from jackfield_attention_torch.invariant import InvariantAttention


class TestConformance(AttentionConformance):
    plugin = "torch"


def test_long_queries_under_a_soft_cap_go_block_by_block() -> None:
    case = AttentionCase(lengths=((0, 300), (20, 270)), layout=NHD_PAGED, soft_cap=2.0, num_heads=2, num_kv_heads=1)
    check(case, TorchAttention)
    check(case, TorchAttention, window=100)


@settings(max_examples=15, deadline=None)
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


@pytest.mark.parametrize("deterministic", [False, True])
def test_what_a_plan_copies_to_the_device_goes_by_the_copies_that_nobody_waits_for(
    deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy from pageable memory makes the host wait for all that was enqueued before it."""
    prepared = prepare(AttentionCase(lengths=((0, 1), (5, 1), (3, 4), (0, 70)), layout=NHD_PAGED))
    backend = (InvariantAttention if deterministic else TorchAttention)(prepared.context)
    copied: list[int] = []

    def to_device(array: NDArray[Any], device: torch.device) -> torch.Tensor:
        copied.append(array.size)
        return torch.tensor(array.tolist(), dtype=torch.int64, device=device)

    def pageable(array: NDArray[Any]) -> torch.Tensor:
        raise AssertionError("a tensor over pageable memory was made")

    backend.bind(prepared.pools)
    for module in (plan, tiles):
        monkeypatch.setattr(module, "to_device", to_device)
    monkeypatch.setattr(torch, "from_numpy", pageable)
    backend.plan(prepared.batch)
    assert sum(copied) >= 76  # every new token's place, and more
