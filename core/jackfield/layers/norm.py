"""Norms: their tensors, and the call. An RMS norm goes through the operators, a layer norm is torch's own."""

from __future__ import annotations

import torch
from torch.nn import functional

from jackfield.hookspecs import ForwardContext, Weight
from jackfield.layers.weight_reader import copy_rows


class RMSNorm:
    """Implements `Norm`. With an offset the weight is `offset + tensor` in float32, as such models compute it."""

    def __init__(self, size: int, *, eps: float, offset: float, device: str, dtype: torch.dtype) -> None:
        self.eps = eps
        self.offset = offset
        self.weight = torch.empty(size, device=device, dtype=torch.float32 if offset else dtype)

    def accept(self, weight: Weight) -> None:
        copy_rows(self.weight, weight)
        if self.offset:
            self.weight += self.offset

    def __call__(self, x: torch.Tensor, ctx: ForwardContext, residual: torch.Tensor | None = None) -> torch.Tensor:
        normed, _ = ctx.ops.norm(x, self.weight, self.eps, residual)
        return normed


class AffineLayerNorm:
    """Implements `LayerNorm`: mean and variance are taken in float32, weight and bias are of the run's dtype."""

    def __init__(self, size: int, *, eps: float, device: str, dtype: torch.dtype) -> None:
        self.eps = eps
        self.weight = torch.empty(size, device=device, dtype=dtype)
        self.bias = torch.empty(size, device=device, dtype=dtype)

    def accept_weight(self, weight: Weight) -> None:
        copy_rows(self.weight, weight)

    def accept_bias(self, weight: Weight) -> None:
        copy_rows(self.bias, weight)

    def __call__(self, x: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
