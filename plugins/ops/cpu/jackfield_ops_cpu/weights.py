"""Packed weights as the native library takes them: a descriptor in C's layout, and the memory that holds the tiles.

It knows how plain weights are packed; packed encodings have modules of their own.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield_ops_cpu.library import library

TILE = 16
"""Output rows of a tile."""


class Scalar(enum.IntEnum):
    """Element types of activations, as in csrc/weight.h."""

    FLOAT32 = 0
    BFLOAT16 = 1
    FLOAT16 = 2


class Form(enum.IntEnum):
    """How a weight is packed, as in csrc/weight.h."""

    F32 = 0
    BF16 = 1
    F16 = 2
    Q8_0 = 3
    Q4_0 = 4
    Q4_1 = 5
    Q4_K = 6
    Q6_K = 7
    INT8 = 8
    MIXED = 9


SCALARS = MappingProxyType(
    {torch.float32: Scalar.FLOAT32, torch.bfloat16: Scalar.BFLOAT16, torch.float16: Scalar.FLOAT16}
)
DENSE = MappingProxyType({torch.float32: Form.F32, torch.bfloat16: Form.BF16, torch.float16: Form.F16})


class WeightStruct(ctypes.Structure):
    """`jf::Weight`."""

    _fields_ = (
        ("form", ctypes.c_int32),
        ("flags", ctypes.c_int32),
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("data", ctypes.c_void_p),
    )


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """What `Ops.pack` gives. rows: outputs; columns: inputs; data: uint8 [bytes], the tiles, aligned to 64 bytes, read only."""

    form: Form
    rows: int
    columns: int
    data: NDArray[np.uint8]
    struct: WeightStruct
    address: int

    @classmethod
    def of(cls, form: Form, rows: int, columns: int, data: NDArray[np.uint8], *, flags: int = 0) -> PackedWeight:
        at = data.ctypes.data
        if at % 64 or not data.flags.c_contiguous:
            raise ValueError(f"packed weights must be contiguous and aligned to 64 bytes; these lie at {at:#x}")
        struct = WeightStruct(int(form), flags, rows, columns, at)
        return cls(form, rows, columns, data, struct, ctypes.addressof(struct))


def dense_bytes(form: Form, rows: int, columns: int) -> int:
    """Size of a plain weight in tiles."""
    tiles = -(-rows // TILE)
    if form is Form.F32:
        return tiles * TILE * columns * 4
    return tiles * TILE * (columns + columns % 2 if form is Form.BF16 else columns) * 2


def pack_dense(plain: torch.Tensor, threads: int) -> PackedWeight:
    """A plain weight [rows, columns] into tiles, a copy."""
    form = DENSE[plain.dtype]
    plain = plain if plain.stride(1) == 1 else plain.contiguous()
    rows, columns = plain.shape
    data = torch.empty(dense_bytes(form, rows, columns), dtype=torch.uint8).numpy()  # which torch aligns
    library().jf_pack_dense(plain.data_ptr(), form, rows, columns, plain.stride(0), data.ctypes.data, threads)
    return PackedWeight.of(form, rows, columns, data)


def is_dense(packed: PackedWeight) -> bool:
    """Whether it is a plain weight in tiles."""
    return packed.form in DENSE.values()


def look_up_dense(ids: torch.Tensor, packed: PackedWeight, dtype: torch.dtype, threads: int) -> torch.Tensor:
    """Rows of a plain table in tiles, whose dtype is `dtype`: int64 [n], each below `packed.rows`, -> [n, columns]."""
    out = torch.empty((ids.shape[0], packed.columns), dtype=dtype)
    library().jf_look_up_dense(packed.address, ids.data_ptr(), ids.shape[0], out.data_ptr(), threads)
    return out


def export_weight(packed: PackedWeight) -> tuple[dict[str, int], NDArray[np.uint8]]:
    """For the cache on disk; every form is told by these numbers and its bytes."""
    flags: int = packed.struct.flags
    return {"form": int(packed.form), "rows": packed.rows, "columns": packed.columns, "flags": flags}, packed.data


def restore_weight(header: Mapping[str, int], data: NDArray[np.uint8]) -> PackedWeight:
    """What `export_weight` told, over the bytes as they lie. ValueError for other bytes than such a weight has."""
    form, rows, columns = Form(header["form"]), header["rows"], header["columns"]
    dense = form in DENSE.values()
    wanted = dense_bytes(form, rows, columns) if dense else library().jf_quantized_bytes(form, rows, columns)
    if data.size != wanted:
        raise ValueError(
            f"a weight of {rows} x {columns} in the form {form.name} has {wanted} bytes; these are {data.size}"
        )
    return PackedWeight.of(form, rows, columns, data, flags=header["flags"])
