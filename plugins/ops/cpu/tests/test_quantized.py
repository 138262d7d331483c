"""Products with quantised weights against float64 products of the decoded weights, at each level, with one thread and two."""

from __future__ import annotations

import ctypes

import pytest
import torch

from jackfield.hookspecs import DenseWeight
from jackfield.layers.quantization import decode
from jackfield.layers.weight_reader import BadWeight
from jackfield.testing.packed import packed_rows
from jackfield_ops_cpu.ops import CpuOps
from jackfield_ops_cpu.quantized import FORMS
from jackfield_ops_cpu.weights import PackedWeight

ENCODED = list(FORMS)
# Few rows, rows that fill bundles and rows that do not, both sides of each change of the way of multiplying, many.
ROWS = (1, 2, 3, 4, 5, 8, 9, 17, 25, 70)
# By weights that are decoded to bfloat16 and the result's own rounding; float32 sums; 14-bit activations.
TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 4e-3, torch.float16: 1e-3}
ACTIVATIONS = 3e-4
"""What rounding activations to 14 bits may add, of the product's own size."""


def randn(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def encoded(encoding: str, out: int, into: int, seed: int = 0) -> DenseWeight:
    data = torch.from_numpy(packed_rows(encoding, out, into, seed))
    return DenseWeight(encoding=encoding, out_features=out, in_features=into, data=data)


def off_by(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Root mean square of the errors, as a share of the wanted."""
    return float((found.double() - wanted).square().mean().sqrt() / wanted.square().mean().sqrt())


@pytest.mark.parametrize("encoding", ENCODED)
@pytest.mark.parametrize("dtype", list(TOLERANCES), ids=str)
def test_products(native: ctypes.CDLL, dtype: torch.dtype, encoding: str) -> None:
    short = 256 if encoding.endswith("k") else 32
    for out, into, threads in ((16, short, 1), (37, 3 * short, 2), (130, 512, 1), (130, 512, 2)):
        weight = encoded(encoding, out, into, seed=out)
        plain, bias = decode(encoding, weight.data).double(), randn(out, seed=2, dtype=dtype)
        ops = CpuOps(dtype, threads=threads)
        tiles = ops.pack(weight)
        for n in ROWS:
            x = randn(n, into, seed=n, dtype=dtype)
            wanted = x.double() @ plain.t()
            assert off_by(ops.linear(x, tiles, bias), wanted + bias.double()) < TOLERANCES[dtype]
            exact = dtype is torch.float32
            allowed = TOLERANCES[dtype] if exact or n > 16 else ACTIVATIONS
            assert off_by(ops.logits(x, tiles), wanted) < allowed


@pytest.mark.parametrize("dtype", list(TOLERANCES), ids=str)
def test_int8(native: ctypes.CDLL, dtype: torch.dtype) -> None:
    for out, into in ((16, 64), (37, 41), (130, 512), (5, 7)):
        weight = randn(out, into, seed=out, dtype=dtype)
        weight[out // 2] = 0
        scale = weight.double().abs().amax(dim=1, keepdim=True).clamp(min=1e-30) / 127
        plain = torch.round(weight.double() / scale) * scale
        for threads in (1, 2):
            ops = CpuOps(dtype, threads=threads, quantization="w8a8_int8")
            tiles = ops.pack(DenseWeight(encoding="plain", out_features=out, in_features=into, data=weight))
            for n in ROWS:
                x = randn(n, into, seed=n, dtype=dtype)
                error = off_by(ops.logits(x, tiles), x.double() @ plain.t())
                assert error < (2e-3 if dtype is torch.float32 or n <= 4 else 1.5e-2)
                # one value in a thousand may lie half way between two codes and be rounded the other way here
                assert off_by(ops.linear(x, tiles), x.double() @ weight.double().t()) < 2e-2


def test_a_huge_activation_takes_nothing_from_those_far_from_it(native: ctypes.CDLL) -> None:
    ops = CpuOps(torch.bfloat16, threads=1, quantization="w8a8_int8")
    weight = randn(32, 512, seed=1, dtype=torch.bfloat16)
    weight[:, :128] = 0
    tiles = ops.pack(DenseWeight(encoding="plain", out_features=32, in_features=512, data=weight))
    for n in (1, 9, 40):
        x = randn(n, 512, seed=2, dtype=torch.bfloat16)
        x[:, 5] = 4000
        assert off_by(ops.logits(x, tiles), x.double() @ weight.double().t()) < 2e-2


@pytest.mark.parametrize("encoding", ENCODED)
def test_every_code_and_scale_is_kept(native: ctypes.CDLL, encoding: str) -> None:
    """Unit vectors give the decoded weights back, in float32 exactly as far as sums are."""
    weight = encoded(encoding, 21, 512, seed=3)
    ops = CpuOps(torch.float32, threads=1)
    plain = decode(encoding, weight.data)
    found = ops.linear(torch.eye(512), ops.pack(weight)).t()
    assert (found - plain).abs().max() <= 2e-6 * plain.abs().max()


@pytest.mark.parametrize("encoding", ENCODED)
def test_rows_looked_up_have_the_decoded_bits(native: ctypes.CDLL, encoding: str) -> None:
    weight = encoded(encoding, 50, 512, seed=4)
    ids = torch.tensor([3, 0, 49, 3, *range(50)])
    for dtype in TOLERANCES:
        ops = CpuOps(dtype, threads=2)
        table = ops.pack(weight)
        assert ops.looks_up(table)
        assert torch.equal(ops.embedding(ids, table), decode(encoding, weight.data).to(dtype)[ids])
        assert ops.embedding(ids[:0], table).shape == (0, 512)
        with pytest.raises(IndexError, match="token ids 0 to 50 are not all below 50"):
            ops.embedding(torch.tensor([0, 50]), table)


@pytest.mark.parametrize("quantization", [None, "w8a8_int8"])
@pytest.mark.parametrize("n", [1, 3, 6, 9, 40])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_row_that_is_not_finite_spoils_itself_alone(
    native: ctypes.CDLL, quantization: str | None, n: int, bad: float
) -> None:
    ops = CpuOps(torch.bfloat16, threads=2, quantization=quantization)
    weight = randn(20, 64, seed=1, dtype=torch.bfloat16)
    plain = DenseWeight(encoding="plain", out_features=20, in_features=64, data=weight)
    tiles = ops.pack(plain if quantization else encoded("q4_1", 20, 64))
    x = randn(n, 64, seed=2, dtype=torch.bfloat16)
    clean = ops.linear(x, tiles)
    x[n // 2, 5] = bad
    found = ops.linear(x, tiles)
    assert not found[n // 2].isfinite().any()
    others = [row for row in range(n) if row != n // 2]
    assert torch.equal(found[others], clean[others])


def test_rows_of_zeros_give_zeros(native: ctypes.CDLL) -> None:
    for quantization, weight in (
        (None, encoded("q4_0", 20, 64)),
        (
            "w8a8_int8",
            DenseWeight(encoding="plain", out_features=20, in_features=64, data=randn(20, 64, seed=1).bfloat16()),
        ),
    ):
        ops = CpuOps(torch.bfloat16, threads=1, quantization=quantization)
        tiles = ops.pack(weight)
        for n in (1, 9, 40):
            assert not ops.linear(torch.zeros(n, 64, dtype=torch.bfloat16), tiles).any()


@pytest.mark.parametrize("encoding", ["q4_k", "int8"])
def test_kept_and_mapped(native: ctypes.CDLL, encoding: str) -> None:
    int8 = encoding == "int8"
    ops = CpuOps(torch.bfloat16, threads=1, quantization="w8a8_int8" if int8 else None)
    plain = DenseWeight(encoding="plain", out_features=20, in_features=256, data=randn(20, 256, seed=1).bfloat16())
    made: PackedWeight = ops.pack(plain if int8 else encoded(encoding, 20, 256))
    header, data = ops.export(made)
    kept = torch.from_numpy(data).clone().numpy()  # which torch aligns
    kept.flags.writeable = False
    for n in (1, 9, 40):
        x = randn(n, 256, seed=n, dtype=torch.bfloat16)
        assert torch.equal(ops.linear(x, ops.restore(header, kept)), ops.linear(x, made))


def test_what_cannot_be_packed_is_refused() -> None:
    ops = CpuOps(torch.bfloat16, threads=1, quantization="w8a8_int8")
    weight = torch.ones(20, 8, dtype=torch.bfloat16)
    weight[17, 3] = torch.nan
    with pytest.raises(BadWeight, match="row 17 holds a NaN or an infinity, which w8a8_int8 cannot hold"):
        ops.pack(DenseWeight(encoding="plain", out_features=20, in_features=8, data=weight))
    short = DenseWeight(encoding="q8_0", out_features=2, in_features=64, data=torch.zeros(2, 34, dtype=torch.uint8))
    with pytest.raises(
        ValueError, match=r"q8_0 data of 2 rows of 64 must be uint8 \(2, 68\); it is torch.uint8 \(2, 34\)"
    ):
        ops.pack(short)
    with pytest.raises(ValueError, match="quantises to w8a8_int8, not to 'fp8'"):
        CpuOps(torch.bfloat16, threads=1, quantization="fp8")


def test_parts_in_different_encodings_make_one_layer(native: ctypes.CDLL) -> None:
    given = [("q4_k", 32), ("q6_k", 48), ("q8_0", 21)]
    parts = [encoded(encoding, out, 512, seed=out) for encoding, out in given]
    plain = torch.cat([decode(part.encoding, part.data) for part in parts]).double()
    for dtype in TOLERANCES:
        for threads in (1, 2):
            ops = CpuOps(dtype, threads=threads)
            whole = ops.pack_mixed(parts)
            assert whole is not None
            assert not ops.looks_up(whole)
            header, data = ops.export(whole)
            again = ops.restore(header, torch.from_numpy(data).clone().numpy())
            for n in (1, 9, 70):
                x = randn(n, 512, seed=n, dtype=dtype)
                found = ops.linear(x, whole)
                assert off_by(found, x.double() @ plain.t()) < TOLERANCES[dtype]
                assert torch.equal(ops.linear(x, again), found)


def test_parts_that_would_begin_inside_a_tile_are_not_joined() -> None:
    ops = CpuOps(torch.bfloat16, threads=1)
    assert ops.pack_mixed([encoded("q4_k", 24, 256), encoded("q6_k", 16, 256)]) is None
    assert ops.pack_mixed([encoded("q4_k", 32, 256), encoded("q5_k", 16, 256)]) is None
