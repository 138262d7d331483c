"""One linear layer of parts in different encodings, as q, k and v of many K-quantised files are.

The parts' tiles lie one after another in one buffer; the native library takes them as the form MIXED, whose data is an array of
their descriptors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import DenseWeight
from jackfield_ops_cpu.quantized import FORMS, pack_blocks
from jackfield_ops_cpu.weights import SCALARS, TILE, Form, PackedWeight, WeightStruct, restore_weight


@dataclass(frozen=True, eq=False)
class MixedWeight(PackedWeight):
    """data: the tiles of all parts; descriptors: what the native library reads."""

    parts: tuple[PackedWeight, ...]
    descriptors: ctypes.Array[WeightStruct]


def pack_mixed(parts: Sequence[DenseWeight], dtype: torch.dtype, threads: int) -> MixedWeight | None:
    """None where a part that is not the last does not fill its tiles, so that the next would begin inside one."""
    if any(part.encoding not in FORMS for part in parts) or any(part.out_features % TILE for part in parts[:-1]):
        return None
    packed = [pack_blocks(part, dtype, threads) for part in parts]
    data = torch.empty(sum(part.data.size for part in packed), dtype=torch.uint8).numpy()  # which torch aligns
    np.concatenate([part.data for part in packed], out=data)
    return _joined([_header(part) for part in packed], data, SCALARS[dtype])


def export_mixed(weight: MixedWeight) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """For the cache on disk."""
    header = {"form": int(Form.MIXED), "flags": weight.struct.flags, "parts": [_header(part) for part in weight.parts]}
    return header, weight.data


def restore_mixed(header: Mapping[str, Any], data: NDArray[np.uint8]) -> MixedWeight:
    """What `export_mixed` told, over the bytes as they lie."""
    return _joined(header["parts"], data, header["flags"])


def _header(part: PackedWeight) -> dict[str, int]:
    return {
        "form": int(part.form),
        "rows": part.rows,
        "columns": part.columns,
        "flags": part.struct.flags,
        "nbytes": part.data.size,
    }


def _joined(headers: Sequence[Mapping[str, int]], data: NDArray[np.uint8], flags: int) -> MixedWeight:
    parts, start = [], 0
    for header in headers:
        parts.append(restore_weight(header, data[start : start + header["nbytes"]]))
        start += header["nbytes"]
    descriptors = (WeightStruct * (len(parts) + 1))(
        *(part.struct for part in parts)
    )  # the last one, of form 0, has no rows
    rows, columns = sum(part.rows for part in parts), parts[0].columns
    struct = WeightStruct(int(Form.MIXED), flags, rows, columns, ctypes.addressof(descriptors))
    return MixedWeight(Form.MIXED, rows, columns, data, struct, ctypes.addressof(struct), tuple(parts), descriptors)
