"""From the product of q, k and v to attention: norms of heads, the rotary turn, and keys and values into their slots.

A head's dimension turns with one that lies half a turn away, so a program loads what it needs of a head a second time, in the
partners' order, out of the nearest cache, and exchanges nothing between threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

_HEADS = 4  # of a program: few enough that a single token has work for several processors


@triton.jit
def _turned(
    heads,  # of one token [HEADS, HEAD]
    weight,  # of the norm [HEAD], or None
    cos,  # of its position [HALF]
    sin,
    at,  # [BLOCK, 1] which heads
    count,
    eps,
    HEAD: tl.constexpr,
    HALF: tl.constexpr,
    WIDTH: tl.constexpr,
    NORMS: tl.constexpr,
):
    """float32 [BLOCK, WIDTH], rounded as torch rounds it between norm and turn."""
    d = tl.arange(0, WIDTH)[None, :]
    inside = (at < count) & (d < HEAD)
    raw = tl.load(heads + at * HEAD + d, mask=inside, other=0.0)
    dtype = raw.dtype
    x = raw.to(tl.float32)
    inverse = 1.0
    if NORMS:
        inverse = tl.rsqrt(tl.sum(x * x, 1) / HEAD + eps)[:, None]
        factor = tl.load(weight + d, mask=d < HEAD, other=0.0)
        x = ((x * inverse).to(factor.dtype).to(tl.float32) * factor.to(tl.float32)).to(dtype).to(tl.float32)
    if HALF > 0:
        partner = tl.where(d < HALF, d + HALF, d - HALF)
        turns = d < 2 * HALF
        y = tl.load(heads + at * HEAD + partner, mask=inside & turns, other=0.0).to(tl.float32)
        if NORMS:
            factor = tl.load(weight + partner, mask=turns, other=0.0)
            y = ((y * inverse).to(factor.dtype).to(tl.float32) * factor.to(tl.float32)).to(dtype).to(tl.float32)
        angle = tl.where(d < HALF, d, d - HALF)
        c = tl.load(cos + angle, mask=turns, other=1.0)
        s = tl.load(sin + angle, mask=turns, other=0.0)
        x = tl.where(turns, x * c + tl.where(d < HALF, -y, y) * s, x)
    return x


@triton.jit
def _cast(x, dtype: tl.constexpr, MOST: tl.constexpr):
    """MOST: largest number of a dtype that does not hold all that x may be, which what lies beyond becomes; 0: it does."""
    if MOST > 0:
        x = tl.clamp(x, -MOST, MOST, propagate_nan=tl.PropagateNan.ALL)
    return x.to(dtype)


@triton.jit
def _heads(
    qkv,  # [n, (Q + K) * HEAD + K * V_HEAD], rows qkv_stride apart
    q,  # [n, Q, HEAD]
    k,  # pages, or [n, K, HEAD]
    v,  # pages
    slots,  # int64 [n]
    positions,  # int64 [n]
    cos,  # [.., HALF], rows angle_stride apart
    sin,
    q_weight,
    k_weight,
    qkv_stride,
    angle_stride,
    k_page,
    k_place,
    k_head,
    v_page,
    v_place,
    v_head,
    q_eps,
    k_eps,
    Q: tl.constexpr,
    K: tl.constexpr,
    HEAD: tl.constexpr,
    V_HEAD: tl.constexpr,
    WIDTH: tl.constexpr,
    V_WIDTH: tl.constexpr,
    HALF: tl.constexpr,
    Q_NORMS: tl.constexpr,
    K_NORMS: tl.constexpr,
    BY_POSITION: tl.constexpr,
    PAGE: tl.constexpr,
    MOST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (token, block of heads): blocks of q first, then of k, then of v. PAGE: tokens of a page; 0: k is no pages."""
    token = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    q_blocks = (Q + BLOCK - 1) // BLOCK
    k_blocks = (K + BLOCK - 1) // BLOCK
    if HALF > 0:
        row = token
        if BY_POSITION:
            row = tl.load(positions + token)
        cos += row * angle_stride
        sin += row * angle_stride
    page = token
    place = token * 0
    if PAGE > 0:
        slot = tl.load(slots + token)
        page = slot // PAGE
        place = slot % PAGE
    qkv += token * qkv_stride
    local = tl.arange(0, BLOCK)[:, None]
    d = tl.arange(0, WIDTH)[None, :]
    if block < q_blocks:
        at = block * BLOCK + local
        x = _turned(qkv, q_weight, cos, sin, at, Q, q_eps, HEAD, HALF, WIDTH, Q_NORMS)
        tl.store(q + token * Q * HEAD + at * HEAD + d, x.to(q.dtype.element_ty), mask=(at < Q) & (d < HEAD))
    elif block < q_blocks + k_blocks:
        at = (block - q_blocks) * BLOCK + local
        x = _turned(qkv + Q * HEAD, k_weight, cos, sin, at, K, k_eps, HEAD, HALF, WIDTH, K_NORMS)
        x = x.to(qkv.dtype.element_ty).to(tl.float32)  # what attention would be given
        to = k + page * k_page + place * k_place + at * k_head + d
        tl.store(to, _cast(x, k.dtype.element_ty, MOST), mask=(at < K) & (d < HEAD))
    else:
        at = (block - q_blocks - k_blocks) * BLOCK + local
        d = tl.arange(0, V_WIDTH)[None, :]
        inside = (at < K) & (d < V_HEAD)
        x = tl.load(qkv + (Q + K) * HEAD + at * V_HEAD + d, mask=inside, other=0.0).to(tl.float32)
        to = v + page * v_page + place * v_place + at * v_head + d
        tl.store(to, _cast(x, v.dtype.element_ty, MOST), mask=inside)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Heads of q, heads of k and of v, and the sizes of one."""

    q: int
    k: int
    head: int
    v_head: int


@dataclass(frozen=True, kw_only=True)
class Angles:
    """cos, sin float32 [rows, half], rows equally far apart. by_position: a token's row is its position, else its index."""

    cos: torch.Tensor
    sin: torch.Tensor
    by_position: bool


@dataclass(frozen=True, kw_only=True)
class Pages:
    """k, v [pages, page, kv_heads, size] in any order of memory that leaves a head dense; slots int64 [n]."""

    k: torch.Tensor
    v: torch.Tensor
    slots: torch.Tensor


Weighted = tuple[torch.Tensor, float]
"""A norm's weight and eps."""


def heads(
    qkv: torch.Tensor,
    sizes: Sizes,
    positions: torch.Tensor,
    *,
    angles: Angles | None,
    q_norm: Weighted | None,
    k_norm: Weighted | None,
    pages: Pages | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """qkv [n, q, k and v side by side], n at least 1 -> q [n, heads, head] and k [n, kv_heads, head], normed and turned.

    pages: keys and values are written there, and k is None. Of another dtype than qkv's they hold what a saturating cast makes.
    """
    if qkv.stride(1) != 1:
        qkv = qkv.contiguous()
    n = qkv.shape[0]
    q = qkv.new_empty((n, sizes.q, sizes.head))
    if pages is None:
        k = v = qkv.new_empty((n, 1, sizes.k, sizes.head))
        slots, page = positions, 0
    else:
        k, v, slots, page = pages.k, pages.v, pages.slots, pages.k.shape[1]
    blocks = triton.cdiv(sizes.q, _HEADS) + triton.cdiv(sizes.k, _HEADS) * (1 if pages is None else 2)
    half = 0 if angles is None else angles.cos.shape[1]
    _heads[(n, blocks)](
        qkv,
        q,
        k,
        v,
        slots,
        positions,
        q if angles is None else angles.cos,
        q if angles is None else angles.sin,
        q if q_norm is None else q_norm[0],
        q if k_norm is None else k_norm[0],
        qkv.stride(0),
        0 if angles is None else angles.cos.stride(0),
        k.stride(0),
        k.stride(1),
        k.stride(2),
        v.stride(0),
        v.stride(1),
        v.stride(2),
        0.0 if q_norm is None else q_norm[1],
        0.0 if k_norm is None else k_norm[1],
        Q=sizes.q,
        K=sizes.k,
        HEAD=sizes.head,
        V_HEAD=sizes.v_head,
        WIDTH=triton.next_power_of_2(sizes.head),
        V_WIDTH=triton.next_power_of_2(sizes.v_head),
        HALF=half,
        Q_NORMS=q_norm is not None,
        K_NORMS=k_norm is not None,
        BY_POSITION=angles is not None and angles.by_position,
        PAGE=page,
        MOST=_most(k.dtype, qkv.dtype),
        BLOCK=_HEADS,
        num_warps=2,
        enable_fp_fusion=True,
    )
    return q, k.squeeze(1) if pages is None else None


def _most(dtype: torch.dtype, given: torch.dtype) -> float:
    """The largest number of a dtype that cannot hold all finite ones of `given`, else 0."""
    most = torch.finfo(dtype).max
    return most if most < torch.finfo(given).max else 0.0
