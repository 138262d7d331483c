"""The activation of a gated MLP: activation(gate) * up, of a product that holds both side by side."""

from __future__ import annotations

from types import MappingProxyType

import torch
import triton
import triton.language as tl

SILU, GELU, GELU_TANH, RELU = (tl.constexpr(number) for number in range(4))
_NUMBERS = MappingProxyType({"silu": 0, "gelu": 1, "gelu_tanh": 2, "relu": 3})
_BLOCK = 1024
_SQRT_HALF = tl.constexpr(0.7071067811865476)
_TURN = tl.constexpr(-1.5957691216057308)  # -2 * sqrt(2 / pi)


@triton.jit
def _gated(
    gate_up,  # [n, 2 * inner], rows stride apart
    out,  # [n, inner]
    stride,
    inner,
    ACTIVATION: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < inner
    gate = tl.load(gate_up + row * stride + at, mask=mask, other=0.0)
    up = tl.load(gate_up + row * stride + inner + at, mask=mask, other=0.0)
    x = gate.to(tl.float32)
    if ACTIVATION == SILU:
        y = x / (1 + tl.exp(-x))
    elif ACTIVATION == GELU:
        y = 0.5 * x * (1 + tl.erf(x * _SQRT_HALF))
    elif ACTIVATION == GELU_TANH:
        # (1 + tanh(a)) / 2 is a logistic function, which needs no difference of near numbers
        y = x / (1 + tl.exp((x + 0.044715 * x * x * x) * _TURN))
    else:
        y = tl.where(x < 0, 0.0, x)  # NaN stays
    tl.store(out + row * inner + at, (y.to(gate.dtype).to(tl.float32) * up.to(tl.float32)).to(gate.dtype), mask=mask)


def gated(activation: str, gate_up: torch.Tensor) -> torch.Tensor:
    """[n, 2 * inner], gate and up side by side, -> [n, inner]; n and inner at least 1."""
    rows, inner = gate_up.shape[0], gate_up.shape[1] // 2
    if gate_up.stride(1) != 1:
        gate_up = gate_up.contiguous()
    out = gate_up.new_empty((rows, inner))
    block = min(_BLOCK, triton.next_power_of_2(inner))
    _gated[(rows, triton.cdiv(inner, block))](
        *(gate_up, out, gate_up.stride(0), inner),
        ACTIVATION=_NUMBERS[activation],
        BLOCK=block,
        num_warps=4,
        enable_fp_fusion=True,
    )
    return out
