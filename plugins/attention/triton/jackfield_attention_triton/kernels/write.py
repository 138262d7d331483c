"""New keys and values into their slots of token-major pages: a copy of bits."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def write_kernel(
    k,
    v,
    keys,
    values,
    slots,
    k_stride,
    v_stride,
    key_stride,
    value_stride,
    K_WIDTH: tl.constexpr,
    V_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (t, b) copies block b of token t's K_WIDTH keys and V_WIDTH values, which are dense, to slots[t] (int64).
    Strides are those of tokens and of slots, in elements."""
    token = tl.program_id(0).to(tl.int64)  # a slot's offset in a large pool does not fit 32 bits, a token's may not
    slot = tl.load(slots + token)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(k + token * k_stride + at, mask=at < K_WIDTH)
    tl.store(keys + slot * key_stride + at, key, mask=at < K_WIDTH)
    value = tl.load(v + token * v_stride + at, mask=at < V_WIDTH)
    tl.store(values + slot * value_stride + at, value, mask=at < V_WIDTH)
