"""RMS norm of rows, and of the sum of rows and residuals, which it stores as well."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

LARGEST_BLOCK = 16384
"""Elements of a row that a program holds at once; longer rows are read twice."""


@triton.jit
def _sum_of(x, residual, at, mask, ADDS: tl.constexpr):
    """x, or x + residual rounded as torch rounds it."""
    found = tl.load(x + at, mask=mask, other=0.0)
    if ADDS:
        added = found.to(tl.float32) + tl.load(residual + at, mask=mask, other=0.0).to(tl.float32)
        found = added.to(found.dtype)
    return found


@triton.jit
def _scaled(total, inverse, weight, at, mask):
    """Rounded to the weight's dtype before it is multiplied, which a float32 weight leaves as it is."""
    factor = tl.load(weight + at, mask=mask, other=0.0)
    normed = (total.to(tl.float32) * inverse).to(factor.dtype)
    return (normed.to(tl.float32) * factor.to(tl.float32)).to(total.dtype)


@triton.jit
def _norm(
    x,  # [rows, size], rows x_stride apart
    residual,  # [rows, size], rows residual_stride apart
    weight,  # [size]
    normed,  # [rows, size]
    total,  # [rows, size]
    x_stride,
    residual_stride,
    eps,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    ADDS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x += row * x_stride
    residual += row * residual_stride
    normed += row * SIZE
    total += row * SIZE
    columns = tl.arange(0, BLOCK)
    if SIZE <= BLOCK:
        mask = columns < SIZE
        found = _sum_of(x, residual, columns, mask, ADDS)
        if ADDS:
            tl.store(total + columns, found, mask=mask)
        wide = found.to(tl.float32)
        inverse = tl.rsqrt(tl.sum(wide * wide, 0) / SIZE + eps)
        tl.store(normed + columns, _scaled(found, inverse, weight, columns, mask), mask=mask)
    else:
        squares = tl.zeros([BLOCK], tl.float32)
        for start in range(0, SIZE, BLOCK):
            at = start + columns
            found = _sum_of(x, residual, at, at < SIZE, ADDS)
            if ADDS:
                tl.store(total + at, found, mask=at < SIZE)
            wide = found.to(tl.float32)
            squares += wide * wide
        inverse = tl.rsqrt(tl.sum(squares, 0) / SIZE + eps)
        for start in range(0, SIZE, BLOCK):
            at = start + columns
            found = _sum_of(x, residual, at, at < SIZE, ADDS)
            tl.store(normed + at, _scaled(found, inverse, weight, at, at < SIZE), mask=at < SIZE)


def norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    residual: torch.Tensor | None = None,
    *,
    largest_block: int = LARGEST_BLOCK,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `Ops.norm`: x [..., size] with at least one row. largest_block: a power of two."""
    size = x.shape[-1]
    rows = _rows(x)
    added = rows if residual is None else _rows(residual)
    normed = torch.empty_like(rows, memory_format=torch.contiguous_format)
    total = torch.empty_like(normed) if residual is not None else normed
    block = min(triton.next_power_of_2(size), largest_block)
    _norm[(rows.shape[0],)](
        rows,
        added,
        weight,
        normed,
        total,
        rows.stride(0),
        added.stride(0),
        eps,
        SIZE=size,
        BLOCK=block,
        ADDS=residual is not None,
        num_warps=min(16, max(1, block // 256)),
        enable_fp_fusion=True,
    )
    return normed.view(x.shape), x if residual is None else total.view(x.shape)


def _rows(x: torch.Tensor) -> torch.Tensor:
    """[rows, size] whose elements lie side by side: a view where that can be."""
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()
