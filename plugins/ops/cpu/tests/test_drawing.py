"""Drawing tokens in native code, at each level, against the sampler that every CPU has."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from jackfield.hookspecs import SamplingRows
from jackfield.layers.host_sampling import sample_on_host
from jackfield_ops_cpu.ops import CpuOps

OFF = 2**31 - 1
KINDS: list[dict[str, Any]] = [
    {},
    {"t": 0.0},
    {"t": 0.3},
    {"k": 1},
    {"k": 50},
    {"k": 5000},
    {"p": 0.0},
    {"p": 0.5},
    {"p": 0.95},
    {"p": 0.9999},
    {"m": 0.05},
    {"m": 1.0},
    {"k": 40, "p": 0.9, "m": 0.01},
    {"t": 1e-30},
    {"t": 1e30, "k": 3},
]


def rows(kinds: list[dict[str, Any]], seed: int) -> SamplingRows:
    full = [{"t": 1.0, "k": OFF, "p": 1.0, "m": 0.0, **kind} for kind in kinds]
    generator = torch.Generator().manual_seed(seed)
    temperature = torch.tensor([one["t"] for one in full])
    return SamplingRows(
        temperature=temperature,
        top_k=torch.tensor([one["k"] for one in full], dtype=torch.int32),
        top_p=torch.tensor([one["p"] for one in full]),
        min_p=torch.tensor([one["m"] for one in full]),
        stream=torch.randint(-(2**63), 2**63 - 1, (len(full),), generator=generator),
        greedy=not temperature.any(),
    )


@pytest.fixture(params=[1, 3])
def ops(request: pytest.FixtureRequest, native: ctypes.CDLL) -> CpuOps:
    return CpuOps(torch.float32, threads=request.param)


@pytest.mark.parametrize("vocab", [1, 5, 63, 64, 97, 4099, 49_152])
@pytest.mark.parametrize("scale", [0.0, 0.1, 3.0, 12.0])
def test_native_draws_are_those_of_every_cpu(ops: CpuOps, vocab: int, scale: float) -> None:
    for seed in range(3):
        logits = torch.randn(len(KINDS), vocab, generator=torch.Generator().manual_seed(seed)) * scale
        if seed == 1:  # many equals
            logits = logits.round()
        if seed == 2 and vocab > 5:  # as under a grammar
            logits[:, torch.rand(vocab, generator=torch.Generator().manual_seed(9)) < 0.9] = -torch.inf
            logits[:, vocab // 2] = 0.0
        parameters = rows(KINDS, seed)
        assert ops.sample(logits, parameters).tolist() == sample_on_host(logits, parameters).tolist()


def test_rows_that_are_not_finite_fail_alone_and_one_row_needs_no_other(ops: CpuOps) -> None:
    logits = torch.randn(4, 200, generator=torch.Generator().manual_seed(3))
    logits[0, 7], logits[1, 7], logits[2] = torch.nan, torch.inf, -torch.inf
    parameters = rows([{}, {"k": 5}, {"p": 0.5}, {"p": 0.5}], 0)
    found = ops.sample(logits, parameters).tolist()
    assert found[:3] == [-1, -1, -1]
    alone: dict[str, Any] = {
        name: value[3:] if isinstance(value, torch.Tensor) else value for name, value in vars(parameters).items()
    }
    assert ops.sample(logits[3:], SamplingRows(**alone)).tolist() == found[3:]


def test_rows_of_a_wider_table_and_of_turned_ones(ops: CpuOps) -> None:
    wide = torch.randn(3, 300, generator=torch.Generator().manual_seed(4))
    parameters = rows([{}, {"k": 7}, {"t": 0.0}], 1)
    expected = sample_on_host(wide[:, 50:250].contiguous(), parameters).tolist()
    assert ops.sample(wide[:, 50:250], parameters).tolist() == expected
    assert ops.sample(wide.t().contiguous().t()[:, 50:250], parameters).tolist() == expected
