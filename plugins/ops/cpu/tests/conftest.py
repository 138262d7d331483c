"""The library at each level of the processor, and operators on it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
import torch

from jackfield.hookspecs import DenseWeight
from jackfield_ops_cpu.library import LEVELS, NativeLibraryMissing, library, use_level
from jackfield_ops_cpu.ops import CpuOps
from jackfield_ops_cpu.weights import PackedWeight

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(params=LEVELS)
def native(request: pytest.FixtureRequest) -> Iterator[ctypes.CDLL]:
    """The library at each level that this processor has."""
    loaded = library()
    before = loaded.jf_level().decode()
    try:
        use_level(loaded, request.param)
    except NativeLibraryMissing as error:
        pytest.skip(str(error))
    yield loaded
    use_level(loaded, before)


class Rig:
    """What the tests of products share."""

    dtypes = DTYPES

    @staticmethod
    def randn(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)

    @staticmethod
    def packed(ops: CpuOps, data: torch.Tensor) -> PackedWeight:
        return ops.pack(DenseWeight(encoding="plain", out_features=data.shape[0], in_features=data.shape[1], data=data))

    @staticmethod
    def off_by(found: torch.Tensor, wanted: torch.Tensor) -> float:
        """The largest error, of the largest value."""
        return float((found.double() - wanted).abs().max() / wanted.abs().max())


@pytest.fixture(scope="session")
def rig() -> Rig:
    return Rig()


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    chosen: torch.dtype = request.param
    return chosen
