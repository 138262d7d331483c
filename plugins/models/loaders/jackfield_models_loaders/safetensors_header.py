"""Reads the header of one safetensors file. Knows no checkpoint of several files.

Every size and offset is checked against the file before any tensor can be asked for: tensors must fill the file
exactly, one behind the other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import ModelSourceError
from jackfield_models_loaders.mapped_file import MappedFile

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
MAX_ELEMENTS = 1 << 60

_BITS = {
    "F64": 64,
    "F32": 32,
    "F16": 16,
    "BF16": 16,
    "I64": 64,
    "I32": 32,
    "I16": 16,
    "I8": 8,
    "U64": 64,
    "U32": 32,
    "U16": 16,
    "U8": 8,
    "BOOL": 8,
    "C64": 64,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E8M0": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
}

PLAIN_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""safetensors dtype -> dtype of a plain weight."""


@dataclass(frozen=True)
class StoredTensor:
    """start: bytes from the file's start."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


class SafetensorsFile:
    """One mapped file and its tensors, in the order in which they lie in it. Raises ModelSourceError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = MappedFile(path)
        self.tensors: dict[str, StoredTensor] = {}
        self._read()

    def data(self, tensor: StoredTensor) -> NDArray[np.uint8]:
        """uint8 [nbytes], a view of the file."""
        return self.file.view(tensor.start, tensor.nbytes)

    def _damaged(self, what: str) -> NoReturn:
        raise ModelSourceError(f"{self.path}: {what}; the file is damaged or truncated: fetch it again")

    def _read(self) -> None:
        size = self.file.size
        if size < 8:
            self._damaged(f"has only {size} bytes")
        length = int.from_bytes(self.file.map[:8], "little")
        if self.file.map[8:9] != b"{" or length > MAX_HEADER_BYTES:
            raise ModelSourceError(
                f"{self.path}: is not a safetensors file"
                + (
                    " but a Git LFS pointer: fetch the file itself"
                    if self.file.map[:8] == b"version "
                    else "; fetch it again"
                )
            )
        if length > size - 8:
            self._damaged(f"ends within its header of {length} bytes")
        header = self._parse(bytes(self.file.map[8 : 8 + length]))
        header.pop("__metadata__", None)
        start = 8 + length
        found = sorted((self._tensor(name, entry, start) for name, entry in header.items()), key=_position)
        at = start
        for tensor in found:
            if tensor.start != at:
                relation = "overlaps the tensor before it" if tensor.start < at else "leaves a hole before it"
                self._damaged(f"tensor {tensor.name!r} {relation}")
            at += tensor.nbytes
            self.tensors[tensor.name] = tensor
        if at > size:
            cut = next(tensor.name for tensor in found if tensor.start + tensor.nbytes > size)
            self._damaged(f"ends within tensor {cut!r}: it should have {at} bytes but has {size}")
        if at < size:
            self._damaged(f"has {size - at} bytes that belong to no tensor")

    def _parse(self, text: bytes) -> dict[str, Any]:
        def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            result = dict(pairs)
            if len(result) != len(pairs):
                raise ValueError("a name appears twice")
            return result

        try:
            header = json.loads(text, object_pairs_hook=once)
        except (ValueError, RecursionError) as error:
            self._damaged(f"its header is not valid JSON ({error})")
        if not isinstance(header, dict):
            self._damaged("its header is not a JSON object")
        return header

    def _tensor(self, name: str, entry: Any, base: int) -> StoredTensor:
        if not isinstance(entry, dict):
            self._damaged(f"tensor {name!r} is not described by a JSON object")
        dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
        bits = _BITS.get(dtype) if isinstance(dtype, str) else None
        if bits is None:
            raise ModelSourceError(f"{self.path}: tensor {name!r} has the unknown dtype {dtype!r}")
        if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2:
            self._damaged(f"tensor {name!r} has a malformed shape or offsets")
        begin, end = offsets
        elements = 1
        for dimension in shape:
            elements *= dimension
            if elements > MAX_ELEMENTS:
                self._damaged(f"tensor {name!r} has the impossible shape {shape}")
        if end - begin != -(-elements * bits // 8) or elements * bits % 8:
            self._damaged(f"tensor {name!r} of dtype {dtype} and shape {shape} cannot have {end - begin} bytes")
        return StoredTensor(name, str(dtype), tuple(shape), base + begin, end - begin)


def _position(tensor: StoredTensor) -> tuple[int, int]:
    return tensor.start, tensor.nbytes  # empty tensors before the one that starts at the same byte


def _naturals(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)
