"""The table of sampling parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from jackfield.hookspecs import RowOpen
from jackfield.layers.noise import streams
from jackfield.layers.sampler import GREEDY_BELOW, SamplingTable


def opened(row: int, **changes: Any) -> RowOpen:
    fields: dict[str, Any] = {"temperature": 0.7, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 1, **changes}
    return RowOpen(row=row, uid=row, history=np.zeros(1, np.int32), **fields)


def stream(seed: int, position: int) -> int:
    return int(streams(np.array([seed], dtype=np.uint64), np.array([position], dtype=np.int64))[0])


def test_rows_come_in_the_asked_order() -> None:
    table = SamplingTable(8, 100, device="cpu")
    table.open(opened(3, temperature=0.5, top_k=7, top_p=0.9, min_p=0.1, seed=11))
    table.open(opened(5, temperature=0.0, seed=2**64 - 1))
    rows = table.rows(np.array([5, 3], dtype=np.int32), np.array([40, 20]))
    assert rows.temperature.tolist() == [0.0, 0.5]
    assert rows.top_k.tolist() == [100, 7]
    assert rows.top_p.tolist() == pytest.approx([1.0, 0.9])
    assert rows.min_p.tolist() == pytest.approx([0.0, 0.1])
    assert rows.stream.tolist() == [stream(2**64 - 1, 40), stream(11, 20)]
    assert not rows.greedy
    types = (rows.temperature.dtype, rows.top_k.dtype, rows.top_p.dtype, rows.min_p.dtype, rows.stream.dtype)
    assert types == (torch.float32, torch.int32, torch.float32, torch.float32, torch.int64)
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
    assert (rows.top_p.tolist(), rows.min_p.tolist(), rows.stream.tolist()) == ([1.0], [0.0], [stream(4, 6)])


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
