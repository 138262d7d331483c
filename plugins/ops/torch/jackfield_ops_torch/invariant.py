"""The operators with rows that do not depend on their batch: the same bits alone, among others, and in any chunk.

What is left to torch as it is was measured to be row by row: norm, rotary, embedding, exp, tanh, erf, and every operation
that IEEE 754 rounds exactly. Not so matrix products, whose kernels depend on the number of rows, and activations that
torch fuses (silu, sigmoid, gelu by tanh): the last elements of a run go through a scalar version with other last bits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

from jackfield.hookspecs import DenseWeight
from jackfield.layers.row_blocks import agreeing_sizes, matmul_block, matmul_by_blocks, probe_row
from jackfield.layers.torch_ops import TorchOps

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class InvariantWeight:
    """matrix [in, out], a view of the plain weight; sizes: the row blocks that give a row the same bits."""

    matrix: torch.Tensor
    sizes: tuple[int, ...]


class InvariantOps(TorchOps):
    """Every shape of weights is tried once, when the first of it is packed."""

    def __init__(self) -> None:
        self._activations = INVARIANT_ACTIVATIONS
        self._sizes: dict[tuple[torch.Size, torch.dtype], tuple[int, ...]] = {}

    def pack(self, weight: DenseWeight) -> InvariantWeight:  # type: ignore[override]
        data: torch.Tensor = super().pack(weight)
        matrix = data.t()
        key = (data.shape, data.dtype)
        if key not in self._sizes:
            row = probe_row(data.shape[1], dtype=data.dtype, device=data.device)
            sizes = agreeing_sizes(lambda block: matmul_block(block, matrix), row)
            if not sizes:
                logger.warning("products with a weight of %s go row by row: no block gives equal rows equal bits", key)
            self._sizes[key] = sizes or (1,)
        return InvariantWeight(matrix, self._sizes[key])

    def linear(  # type: ignore[override]
        self, x: torch.Tensor, weight: InvariantWeight, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        out = matmul_by_blocks(x, weight.matrix, weight.sizes)
        return out if bias is None else out + bias


def _silu(x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide / (wide.neg().exp_().add_(1))).to(x.dtype)


def _gelu(x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide * 0.5 * (torch.erf(wide * math.sqrt(0.5)) + 1)).to(x.dtype)


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    inner = (wide * wide * wide * 0.044715 + wide) * math.sqrt(2 / math.pi)
    return (wide * 0.5 * (torch.tanh(inner) + 1)).to(x.dtype)


INVARIANT_ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = MappingProxyType(
    {"silu": _silu, "gelu": _gelu, "gelu_tanh": _gelu_tanh, "relu": torch.relu}
)
