"""What float64 is for: sums that float32 loses."""

from __future__ import annotations

import torch
from double_ops.operators import DoubleOps

from jackfield.hookspecs import DenseWeight

ops = DoubleOps()


def test_a_linear_layer_loses_nothing_on_the_way() -> None:
    x = torch.tensor([[1.0, 1e8, -1e8]])
    weight = torch.ones(1, 3)
    packed = ops.pack(DenseWeight(encoding="plain", out_features=1, in_features=3, data=weight))
    assert ops.linear(x, packed).tolist() == [[1.0]]
    assert ops.linear(x.bfloat16(), packed).dtype == torch.bfloat16


def test_norm_is_rounded_once() -> None:
    x, residual, weight = torch.randn(4, 32).bfloat16(), torch.randn(4, 32).bfloat16(), torch.rand(32).bfloat16()
    normed, total = ops.norm(x, weight, 1e-6, residual)
    wide = total.double()
    wanted = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    assert torch.equal(normed, wanted.bfloat16())
    assert torch.equal(total, x + residual)
