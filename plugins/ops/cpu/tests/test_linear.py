"""Products with packed plain weights against float64, at each level, with one thread and more."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
import torch

from jackfield.hookspecs import DenseWeight
from jackfield_ops_cpu.ops import CpuOps

# What float32 sums differ by, and what the result is rounded to.
TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 5e-3, torch.float16: 1e-3}
ROWS = (1, 2, 7, 12, 13, 33, 300)


@pytest.mark.parametrize(("out", "into"), [(1, 1), (5, 7), (64, 96), (130, 257)])
def test_any_shape(rig: Any, native: ctypes.CDLL, dtype: torch.dtype, out: int, into: int) -> None:
    weight, bias = rig.randn(out, into, seed=1, dtype=dtype), rig.randn(out, seed=2, dtype=dtype)
    for threads, rows in ((1, ROWS), (2, (1, 33)), (3, (300,))):
        ops = CpuOps(dtype, threads=threads)
        tiles = rig.packed(ops, weight)
        for n in rows:
            x = rig.randn(n, into, seed=n, dtype=dtype)
            wanted = x.double() @ weight.double().t()
            assert rig.off_by(ops.linear(x, tiles), wanted) < TOLERANCES[dtype]
            assert rig.off_by(ops.linear(x, tiles, bias), wanted + bias.double()) < TOLERANCES[dtype]
            logits = ops.logits(x, tiles)
            assert logits.dtype is torch.float32
            assert rig.off_by(logits, wanted) < 2e-6, "float32 logits are not rounded"


def test_no_rows_and_rows_that_lie_apart(rig: Any, native: ctypes.CDLL, dtype: torch.dtype) -> None:
    ops = CpuOps(dtype, threads=2)
    weight = rig.randn(24, 32, seed=1, dtype=dtype)
    tiles = rig.packed(ops, weight)
    assert ops.linear(torch.empty(0, 32, dtype=dtype), tiles).shape == (0, 24)
    x = rig.randn(3, 64, seed=2, dtype=dtype)[:, ::2]
    assert rig.off_by(ops.linear(x, tiles), x.double() @ weight.double().t()) < TOLERANCES[dtype]
    transposed = rig.randn(32, 24, seed=1, dtype=dtype).t()
    assert (
        rig.off_by(ops.linear(x, rig.packed(ops, transposed)), x.double() @ transposed.double().t()) < TOLERANCES[dtype]
    )


def test_nothing_leaks_out_of_a_neighbouring_row(rig: Any, native: ctypes.CDLL) -> None:
    """Odd rows are read in pairs of elements: what stands behind one must not be multiplied, not even with zero."""
    for dtype in rig.dtypes:
        ops = CpuOps(dtype, threads=2)
        weight = rig.randn(20, 33, seed=1, dtype=dtype)
        x = rig.randn(4, 33, seed=2, dtype=dtype)
        x[1] = torch.nan
        found = ops.linear(x, rig.packed(ops, weight))
        assert found[1].isnan().all()
        assert not found[[0, 2, 3]].isnan().any()


def test_threads_do_not_change_a_product_beyond_rounding(rig: Any, native: ctypes.CDLL) -> None:
    weight = rig.randn(1000, 200, seed=1)
    for n in (1, 5, 40, 301):
        x = rig.randn(n, 200, seed=2)
        alone, *others = (
            (ops := CpuOps(torch.float32, threads=threads)).linear(x, rig.packed(ops, weight)) for threads in (1, 2, 3)
        )
        for other in others:
            torch.testing.assert_close(other, alone, rtol=1e-5, atol=1e-4)


def test_rows_of_another_width_or_dtype_are_refused(rig: Any) -> None:
    ops = CpuOps(torch.bfloat16, threads=1)
    tiles = rig.packed(ops, rig.randn(8, 16, seed=1, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match=r"rows are torch.bfloat16 \(2, 8\); torch.bfloat16 \(n, 16\) was expected"):
        ops.linear(torch.zeros(2, 8, dtype=torch.bfloat16), tiles)
    with pytest.raises(ValueError, match=r"rows are torch\.float32"):
        ops.linear(torch.zeros(2, 16), tiles)
    with pytest.raises(ValueError, match=r"a bias is torch.float32 \(8,\); bfloat16 \(8,\) was expected"):
        ops.linear(torch.zeros(2, 16, dtype=torch.bfloat16), tiles, torch.zeros(8))


def test_packed_weights_can_be_kept_and_mapped(rig: Any) -> None:
    ops = CpuOps(torch.float32, threads=1)
    made = rig.packed(ops, rig.randn(20, 33, seed=1))
    header, data = ops.export(made)
    kept = data.copy() if data.ctypes.data % 64 else data
    kept.flags.writeable = False
    x = rig.randn(3, 33, seed=2)
    assert torch.equal(ops.linear(x, ops.restore(header, kept)), ops.linear(x, made))


def test_bytes_that_are_not_as_many_as_the_weight_has_are_refused(rig: Any) -> None:
    """Or products would read what lies behind them."""
    ops = CpuOps(torch.float32, threads=1)
    header, data = ops.export(rig.packed(ops, rig.randn(20, 33, seed=1)))
    for wrong in (data[:-64], np.concatenate([data, data])):
        with pytest.raises(ValueError, match=f"20 x 33 in the form F32 has {data.size} bytes; these are {wrong.size}"):
            ops.restore(header, wrong)
    quantized = CpuOps(torch.float32, threads=1, quantization="w8a8_int8")
    header, data = quantized.export(rig.packed(quantized, rig.randn(20, 33, seed=1)))
    with pytest.raises(ValueError, match=r"in the form INT8 has .* bytes"):
        quantized.restore(header, data[:-64])


def test_encodings_that_the_manifest_does_not_list_are_refused() -> None:
    weight = DenseWeight(encoding="q5_0", out_features=2, in_features=32, data=torch.zeros(2, 22, dtype=torch.uint8))
    with pytest.raises(ValueError, match="q5_0"):
        CpuOps(torch.float32, threads=1).pack(weight)


def test_rows_are_looked_up_in_tiles(rig: Any, dtype: torch.dtype) -> None:
    """A tied head's table need not be kept beside its packed weight."""
    ops = CpuOps(dtype, threads=2)
    for rows, width in ((50, 24), (33, 17), (40, 600)):
        table = rig.randn(rows, width, seed=1, dtype=dtype)
        packed = rig.packed(ops, table)
        assert ops.looks_up(packed)
        for ids in (torch.tensor([3, 0, rows - 1, 3]), torch.arange(rows), torch.empty(0, dtype=torch.int64)):
            assert torch.equal(ops.embedding(ids, packed), table[ids])
            for narrow in (packed, table):
                assert torch.equal(ops.embedding(ids.int(), narrow), table[ids])
        with pytest.raises(IndexError, match=f"are not all below {rows}"):
            ops.embedding(torch.tensor([0, rows]), packed)
