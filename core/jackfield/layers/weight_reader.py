"""From a checkpoint's `Weight` to device memory: checks, decoding, this rank's rows and columns, a block at a time.

A weight is seen as a matrix of rows (a vector is one row). It is copied in blocks of bounded size, so that loading
needs the destination, the (memory-mapped) file and one block, never a second whole copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import Weight
from jackfield.layers.quantization import ENCODINGS, decode

TORCH_DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
)
"""The dtypes of weights and of runs, by the names that the contract uses."""

BLOCK_ELEMENTS = 1 << 20


class BadWeight(Exception):
    """The content of a weight cannot be used. The text says why.

    why     without the row
    name    of the weight, where it is another one than that at hand
    row     where it is one row of the matrix, which is that of the checkpoint's weight or the one that was packed
    """

    def __init__(self, why: str, *, name: str | None = None, row: int | None = None) -> None:
        super().__init__(why if row is None else f"row {row} {why}")
        self.why = why
        self.name = name
        self.row = row


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a contract name. ValueError lists the known names."""
    if name not in TORCH_DTYPES:
        raise ValueError(f"dtype {name!r} is unknown; known: {', '.join(TORCH_DTYPES)}")
    return TORCH_DTYPES[name]


def check_weight(weight: Weight) -> None:
    """Raise BadWeight unless the bytes can be read as the weight's shape."""
    if "data" not in weight.parts:
        raise BadWeight("has no part 'data'")
    nbytes = weight.parts["data"].nbytes
    elements = int(np.prod(weight.shape, dtype=np.int64))
    if weight.encoding == "plain":
        if weight.dtype not in TORCH_DTYPES:
            raise BadWeight(f"dtype {weight.dtype!r} is not read; known: {', '.join(TORCH_DTYPES)}")
        expected = elements * TORCH_DTYPES[weight.dtype].itemsize
    elif weight.encoding in ENCODINGS:
        form = ENCODINGS[weight.encoding]
        if not weight.shape or weight.shape[-1] % form.elements:
            raise BadWeight(f"rows of shape {list(weight.shape)} are not whole blocks of {form.elements}")
        expected = elements // form.elements * form.nbytes
    else:
        raise BadWeight(f"encoding {weight.encoding!r} is not read; known: plain, {', '.join(ENCODINGS)}")
    if nbytes != expected:
        raise BadWeight(f"has {nbytes} bytes where {list(weight.shape)} in {weight.encoding} takes {expected}")


def row_matrix(weight: Weight) -> NDArray[np.uint8]:
    """The bytes as [rows, bytes a row], without a copy."""
    rows = weight.shape[0] if len(weight.shape) > 1 else 1
    return weight.parts["data"].reshape(rows, -1)


def columns_are_whole(encoding: str, columns: tuple[int, int]) -> bool:
    """True if [first, last) cuts no block of a packed encoding."""
    elements = ENCODINGS[encoding].elements
    return columns[0] % elements == 0 and columns[1] % elements == 0


def packed_rows(
    weight: Weight, rows: tuple[int, int], columns: tuple[int, int], device: torch.device | str
) -> torch.Tensor:
    """A part of a packed weight, still packed: uint8 [rows, bytes a row]. `columns` must be whole blocks."""
    form = ENCODINGS[weight.encoding]
    first, last = (column // form.elements * form.nbytes for column in columns)
    return _own(row_matrix(weight)[rows[0] : rows[1], first:last]).to(device)


def copy_rows(
    target: torch.Tensor, weight: Weight, rows: tuple[int, int] = (0, 1), columns: tuple[int, int] | None = None
) -> None:
    """Fill `target` [rows, columns] (or [columns]) with a part of a weight, decoded and in the target's dtype."""
    flat = target.unsqueeze(0) if target.dim() == 1 else target
    span = columns if columns is not None else (0, weight.shape[-1])
    done = 0
    for block in _blocks(weight, rows, span, target.device):
        flat[done : done + block.shape[0]].copy_(block)
        done += block.shape[0]


def _own(view: NDArray[np.uint8]) -> torch.Tensor:
    """A copy that torch may hold: files are mapped read-only, and their tensors need not be aligned."""
    return torch.from_numpy(np.array(view, order="C"))


def _blocks(
    weight: Weight, rows: tuple[int, int], columns: tuple[int, int], device: torch.device
) -> Iterator[torch.Tensor]:
    """The wanted part in blocks of rows, each a tensor in the weight's own (or decoded, float32) dtype."""
    matrix = row_matrix(weight)
    step = max(1, BLOCK_ELEMENTS // max(weight.shape[-1], 1))
    for first in range(rows[0], rows[1], step):
        part = matrix[first : min(first + step, rows[1])]
        if weight.encoding == "plain":
            dtype = TORCH_DTYPES[weight.dtype]
            part = part[:, columns[0] * dtype.itemsize : columns[1] * dtype.itemsize]
            yield _own(part).to(device).view(dtype)
        else:
            yield decode(weight.encoding, _own(part).to(device))[:, columns[0] : columns[1]]
