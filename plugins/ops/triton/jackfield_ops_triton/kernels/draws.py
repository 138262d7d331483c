"""What the kernels of sampling share: a token's weight, and its random number.

A weight must have the same bits wherever it is computed, because the border of top-k and top-p is found as one. So nothing is
left to the compiler where it could round once instead of twice.
"""

from __future__ import annotations

import triton
import triton.language as tl

ONE = tl.constexpr(0x3F800000)
"""The bits of the largest weight, 1.0. Bits of weights are in the order of weights."""

_LOG2_E = tl.constexpr(1.4426950408889634)
_LOG2_E_REST = tl.constexpr(1.925963033500983e-08)  # what float32 leaves of it
_LN_2 = tl.constexpr(0.6931471805599453)
_LOWEST = tl.constexpr(-200.0)  # its exponential is 0 in float32
_TINY = tl.constexpr(1.1754943508222875e-38)  # the least normal number

_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
_SECOND = tl.constexpr(0x94D049BB133111EB)


@triton.jit
def weights(logits, largest, temperature):
    """exp((logits - largest) / temperature) in float32, of logits that are at most `largest`; exactly 1 for that one.

    Through 2**y, the processor's own, whose argument is corrected for what its rounding lost.
    """
    # shifted by the maximum first, so that no temperature, however small, makes an infinity
    x = tl.maximum(tl.div_rn(logits - largest, tl.maximum(temperature, _TINY)), _LOWEST)
    y = x * _LOG2_E
    lost = tl.fma(x, _LOG2_E_REST, tl.fma(x, _LOG2_E, -y))
    power = tl.exp2(y)
    return tl.fma(power, lost * _LN_2, power)


@triton.jit
def hashes(stream, ids):
    """uint64: the hashes of `jackfield.layers.noise`, of a uint64 stream and token ids."""
    bits = stream + (ids + 1).to(tl.uint64) * _GOLDEN
    bits = (bits ^ (bits >> 30)) * _FIRST
    bits = (bits ^ (bits >> 27)) * _SECOND
    return bits ^ (bits >> 31)


@triton.jit
def exponentials(bits):
    """float64: -log of the numbers that hashes stand for."""
    return -tl.log(((bits >> 12).to(tl.float64) + 0.5) * 2.220446049250313e-16)


@triton.jit
def at_index(values, index, SIZE: tl.constexpr):
    """values[index] of a vector in registers."""
    return tl.sum(tl.where(tl.arange(0, SIZE) == index, values, 0), 0)
