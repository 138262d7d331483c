"""Matrix products whose rows do not depend on how many rows there are: rows go through in blocks of a few fixed sizes.

A library picks its kernel, and with it the order in which it adds, by the shape: a row alone and the same row in a batch
differ in their last bits. Here a product sees only shapes of which it was shown, on this machine and with this number of
threads, that they give a row the same bits at every place. It knows nothing of weights, models or attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch.nn import functional

SIZES = (4, 8, 16, 32, 64, 128)
"""Sizes of a block that are tried. Fewer than four rows are other kernels nearly everywhere."""

_PADDED = 32  # up to here one padded block is cheaper than a second pass over the weights
_ALIGNMENT = 64  # bytes; kernels may treat the elements before the first aligned one differently


def agreeing_sizes(
    product: Callable[[torch.Tensor], torch.Tensor], row: torch.Tensor, sizes: Sequence[int] = SIZES
) -> tuple[int, ...]:
    """The sizes, ascending, for which `product` gives a row the same bits at every place of a block.

    product   [m, k] -> [any number of rows, n], each row of the result being made of one row of the block
    row       [k], such as `probe_row` makes it; a block is m times this row, because a kernel is picked by the shape

    Sizes that agree with the largest that agrees with itself are kept; none may. A row at a time, sizes (1,), is then left
    for a single product: every call is the same.
    """
    kept: list[int] = []
    reference: torch.Tensor | None = None
    for size in sorted(sizes, reverse=True):
        made = product(row.expand(size, -1).contiguous())
        if reference is None and bool((made == made[0]).all()):
            reference = made[0].clone()
        if reference is not None and bool((made == reference).all()):
            kept.append(size)
    return tuple(reversed(kept))


def probe_row(size: int, *, dtype: torch.dtype, device: torch.device | str, seed: int = 0) -> torch.Tensor:
    """[size] normal numbers, the same every time. Other orders of adding them round differently."""
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype).to(device)


def block_spans(rows: int, sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(start, stop, size) of each block of `rows` rows; stop - start < size only in the last, which is padded.

    sizes    ascending, as `agreeing_sizes` gives them
    """
    start = 0
    while start < rows:
        left = rows - start
        larger = [size for size in sizes if size >= left]
        smaller = [size for size in sizes if size <= left]
        size = larger[0] if larger and (left <= _PADDED or larger[0] == left or not smaller) else smaller[-1]
        yield start, min(start + size, rows), size
        start += size


def matmul_by_blocks(x: torch.Tensor, matrix: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """[n, k] @ [k, m] -> [n, m], a row's bits the same in every batch; `sizes` from `agreeing_sizes` of `matmul_block`."""
    parts = []
    for start, stop, size in block_spans(x.shape[0], sizes):
        block = x[start:stop]
        if stop - start < size:
            block = functional.pad(block, (0, 0, 0, size - (stop - start)))
        parts.append(matmul_block(block, matrix)[: stop - start])
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if parts else x.new_empty(0, matrix.shape[1])


def matmul_block(block: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """One block through the product that `matmul_by_blocks` uses; memory of its own, so that places are alike."""
    return torch.mm(aligned(block), matrix)


def aligned(x: torch.Tensor) -> torch.Tensor:
    """x itself or a copy: contiguous and beginning at a cache line."""
    if x.is_contiguous() and x.data_ptr() % _ALIGNMENT == 0:
        return x
    return x.clone(memory_format=torch.contiguous_format)
