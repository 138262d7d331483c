"""Arithmetic that the language lacks: an exact enough tanh, and fp8 out of its bits where the hardware cannot."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tanh(x):
    """float32, to some 2**-23 of the value. Near zero 1 - 2 / (1 + e**2x) would lose it all, so there its series stands."""
    small = tl.abs(x) < 0.35
    square = tl.where(small, x * x, 0.0)
    series = 62 / 2835 + square * (-1382 / 155925 + square * (21844 / 6081075))
    series = 1.0 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * series)))
    power = tl.exp2(tl.minimum(x, 20.0) * 2.885390081777927)  # 2 / ln 2; beyond 20 tanh is 1
    return tl.where(small, x * series, 1.0 - 2.0 / (1.0 + power))


@triton.jit
def widened(held, DTYPE: tl.constexpr, FP8: tl.constexpr):
    """What the cache holds as DTYPE. FP8 "": by a cast; "e4m3" or "e5m2": `held` is uint8, the bits of such a number."""
    if FP8 == "e5m2":
        return (held.to(tl.uint16) << 8).to(tl.float16, bitcast=True).to(DTYPE)  # it is the upper half of a float16
    elif FP8 == "e4m3":
        bits = held.to(tl.uint16)
        half = (((bits & 0x80) << 8) | ((bits & 0x7F) << 7)).to(tl.float16, bitcast=True)
        value = half.to(tl.float32) * 256.0  # the biases of the exponents are 15 and 7; subnormals come out right too
        return tl.where((bits & 0x7F) == 0x7F, float("nan"), value).to(DTYPE)
    else:
        return held.to(DTYPE)
