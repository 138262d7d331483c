"""Quantised weights: GGUF blocks brought into tiles as they are, and plain weights made int8.

A tile keeps the codes and scales of the file, so that a value is the same as `jackfield.layers.quantization` decodes it. What
is multiplied how is for the native library to say (csrc/kernels/quant_linear.cpp): in float32 runs the values are decoded, in
others a few rows meet the codes themselves.
"""

from __future__ import annotations

from types import MappingProxyType

import torch

from jackfield.hookspecs import DenseWeight
from jackfield.layers.quantization import ENCODINGS
from jackfield.layers.weight_reader import BadWeight
from jackfield_ops_cpu.library import library
from jackfield_ops_cpu.weights import DENSE, SCALARS, Form, PackedWeight

FORMS = MappingProxyType(
    {"q8_0": Form.Q8_0, "q4_0": Form.Q4_0, "q4_1": Form.Q4_1, "q4_k": Form.Q4_K, "q6_k": Form.Q6_K}
)
"""Encodings that stay packed, as the manifest lists them."""

W8A8_INT8 = "w8a8_int8"
"""The quantisation of plain weights that is known here: int8 with one scale a row."""


def pack_blocks(weight: DenseWeight, dtype: torch.dtype, threads: int) -> PackedWeight:
    """A weight in an encoding of FORMS, for rows of `dtype`. ValueError unless its bytes are whole rows of whole blocks."""
    form, encoding = FORMS[weight.encoding], ENCODINGS[weight.encoding]
    shape = (weight.out_features, weight.in_features // encoding.elements * encoding.nbytes)
    if weight.in_features % encoding.elements or weight.data.shape != shape or weight.data.dtype != torch.uint8:
        raise ValueError(
            f"{weight.encoding} data of {weight.out_features} rows of {weight.in_features} must be uint8 {shape}; "
            f"it is {weight.data.dtype} {tuple(weight.data.shape)}"
        )
    blocks = weight.data if weight.data.stride(1) == 1 else weight.data.contiguous()
    packed = _empty(form, weight.out_features, weight.in_features, dtype)
    library().jf_pack_quantized(
        blocks.data_ptr(), form, packed.rows, packed.columns, blocks.stride(0), packed.data.ctypes.data, threads
    )
    return packed


def pack_int8(plain: torch.Tensor, dtype: torch.dtype, threads: int) -> PackedWeight:
    """A plain weight [rows, columns] in int8, for rows of `dtype`. BadWeight for a value that is not finite."""
    plain = plain if plain.stride(1) == 1 else plain.contiguous()
    rows, columns = plain.shape
    packed = _empty(Form.INT8, rows, columns, dtype)
    bad: int = library().jf_pack_int8(
        plain.data_ptr(),
        DENSE[plain.dtype],
        packed.rows,
        packed.columns,
        plain.stride(0),
        packed.data.ctypes.data,
        threads,
    )
    if bad >= 0:
        raise BadWeight(f"holds a NaN or an infinity, which {W8A8_INT8} cannot hold; use --quantization none", row=bad)
    return packed


def looks_up(packed: PackedWeight) -> bool:
    """Whether `look_up` gives the rows that a decoded table would: not for int8, whose table was not quantised."""
    return packed.form in FORMS.values()


def look_up(ids: torch.Tensor, packed: PackedWeight, dtype: torch.dtype, threads: int) -> torch.Tensor:
    """Rows of a packed table, decoded: int64 [n], each below `packed.rows`, -> [n, columns]."""
    out = torch.empty((ids.shape[0], packed.columns), dtype=dtype)
    library().jf_look_up(packed.address, ids.data_ptr(), ids.shape[0], out.data_ptr(), SCALARS[dtype], threads)
    return out


def _empty(form: Form, rows: int, columns: int, dtype: torch.dtype) -> PackedWeight:
    nbytes: int = library().jf_quantized_bytes(form, rows, columns)
    data = torch.empty(nbytes, dtype=torch.uint8).numpy()  # which torch aligns
    return PackedWeight.of(form, rows, columns, data, flags=SCALARS[dtype])
