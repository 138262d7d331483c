"""Deterministic inference in the operators: near the plain ones, and every row with the same bits in every batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import DenseWeight, OpsContext
from jackfield.layers.activations import ACTIVATIONS
from jackfield_ops_torch.invariant import INVARIANT_ACTIVATIONS, InvariantOps
from jackfield_ops_torch.ops import TorchOps
from jackfield_ops_torch.torch import jackfield_ops

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def packed(ops: TorchOps, data: torch.Tensor) -> object:
    return ops.pack(DenseWeight(encoding="plain", out_features=data.shape[0], in_features=data.shape[1], data=data))


def hold_rows(operator: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, cuts: list[int]) -> None:
    """The same bits together, in parts, alone and in another order."""
    together = operator(x)
    assert torch.equal(together, torch.cat([operator(part) for part in x.split(cuts)]))
    assert torch.equal(together[-1:], operator(x[-1:].clone()))
    assert torch.equal(together, operator(x.flip(0)).flip(0))


some_cuts = st.lists(st.integers(1, 90), min_size=1, max_size=4)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=20)
@given(some_cuts, st.sampled_from([64, 96, 577, 1536]), st.booleans(), st.integers(0, 2**31))
def test_linear(dtype: torch.dtype, cuts: list[int], width: int, biased: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    ops = InvariantOps()
    data = torch.randn(131, width, generator=generator).to(dtype)
    bias = torch.randn(131, generator=generator).to(dtype) if biased else None
    weight = packed(ops, data)
    x = torch.randn(sum(cuts), width, generator=generator).to(dtype)
    hold_rows(lambda part: ops.linear(part, weight, bias), x, cuts)  # type: ignore[arg-type]
    plain = TorchOps().linear(x, data, bias)
    torch.testing.assert_close(
        ops.linear(x, weight, bias), plain, rtol=0.02, atol=0.3 if dtype != torch.float32 else 1e-3
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=20)
@given(some_cuts, st.sampled_from([64, 96, 577, 1536]), st.integers(0, 2**31))
def test_norm(dtype: torch.dtype, cuts: list[int], width: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(width, generator=generator).to(dtype)
    x = torch.randn(sum(cuts), width, generator=generator).to(dtype)
    hold_rows(lambda part: InvariantOps().norm(part, weight, 1e-5, part)[0], x, cuts)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=20)
@given(cuts=some_cuts, width=st.sampled_from([1, 5, 48, 577]), seed=st.integers(0, 2**31))
def test_activations(name: str, dtype: torch.dtype, cuts: list[int], width: int, seed: int) -> None:
    x = (torch.randn(sum(cuts), 2 * width, generator=torch.Generator().manual_seed(seed)) * 8).to(dtype)
    hold_rows(lambda part: INVARIANT_ACTIVATIONS[name](part[:, :width]), x, cuts)
    found, plain = INVARIANT_ACTIVATIONS[name](x), ACTIVATIONS[name](x)
    assert found.dtype == dtype
    torch.testing.assert_close(
        found, plain, rtol=2e-2 if dtype != torch.float32 else 1e-5, atol=1e-3 if dtype != torch.float32 else 1e-5
    )


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_at_the_ends(name: str) -> None:
    ends = torch.tensor([-1e30, -200.0, -0.0, 0.0, 200.0, 1e10])
    torch.testing.assert_close(INVARIANT_ACTIVATIONS[name](ends), ACTIVATIONS[name](ends))


def test_a_shape_without_agreeing_blocks_goes_row_by_row_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    ops = InvariantOps()
    data = torch.randn(5, 37, generator=torch.Generator().manual_seed(1))
    weight = packed(ops, data)
    x = torch.randn(9, 37, generator=torch.Generator().manual_seed(2))
    hold_rows(lambda part: ops.linear(part, weight), x, [4, 5])  # type: ignore[arg-type]
    assert ("row by row" in caplog.text) == (weight.sizes == (1,))  # type: ignore[attr-defined]


def test_no_rows() -> None:
    ops = InvariantOps()
    weight = packed(ops, torch.ones(3, 4))
    assert ops.linear(torch.empty(0, 4), weight).shape == (0, 3)  # type: ignore[arg-type]


def test_the_context_decides() -> None:
    context = OpsContext(kind="ops", name="torch", instance="torch", device="cpu", dtype="float32", layout="nhd-paged")
    assert type(jackfield_ops(context)) is TorchOps
    deterministic = OpsContext(**{**vars(context), "deterministic": True})
    assert type(jackfield_ops(deterministic)) is InvariantOps
