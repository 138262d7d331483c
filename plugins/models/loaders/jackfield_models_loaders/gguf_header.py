"""Reads the header of a GGUF file: metadata and the table of tensors. Knows no architecture and no tokenizer.

Every count, length and offset of the file is checked against its size before it is used, so that a damaged or hostile
file costs nothing but an error. Arrays are not decoded here: a numeric one is a view, one of strings is walked once.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import ModelSourceError
from jackfield_models_loaders.ggml_types import GGML_TYPES, GgmlType
from jackfield_models_loaders.mapped_file import MappedFile

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_NAME_BYTES = 65535  # the format's own limit for keys
MAX_DIMENSIONS = 4
MAX_ELEMENTS = 1 << 60
SMALLEST_STRING = 8  # its length field

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: _U32,
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    10: _U64,
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_ARRAYS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "<u1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_BOOL, _STRING, _ARRAY = 7, 8, 9


@dataclass(frozen=True)
class StringArray:
    """Where an array of strings lies in the file; bounds are checked, the text is not yet decoded."""

    offset: int
    count: int


Value = bool | int | float | str | StringArray | NDArray[np.generic]


@dataclass(frozen=True)
class GgufTensor:
    """One tensor. shape: row-major, outermost first (the file has it the other way round); offset: bytes from the
    file's start; rows: product of all but the last dimension."""

    name: str
    type: GgmlType
    shape: tuple[int, ...]
    offset: int
    rows: int
    row_bytes: int

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes


class GgufHeader:
    """The header of one file. Making it raises ModelSourceError for anything that is not a whole GGUF file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = MappedFile(path)
        self._at = 0
        self.metadata: dict[str, Value] = {}
        self.tensors: dict[str, GgufTensor] = {}
        self._read()

    def strings(self, array: StringArray) -> list[str]:
        """Decode an array of strings. Raises ModelSourceError if one is not UTF-8."""
        data, at, result = self.file.map, array.offset, []
        unpack = _U64.unpack_from
        try:
            for _ in range(array.count):
                start = at + 8
                at = start + unpack(data, at)[0]
                result.append(str(data[start:at], "utf-8"))
        except UnicodeDecodeError as error:
            self._damaged(f"string {len(result)} of an array is not UTF-8 ({error})")
        return result

    def data(self, tensor: GgufTensor) -> NDArray[np.uint8]:
        """uint8 [rows, bytes a row], a view of the file."""
        return self.file.view(tensor.offset, tensor.nbytes).reshape(tensor.rows, tensor.row_bytes)

    def _damaged(self, what: str) -> NoReturn:
        raise ModelSourceError(f"{self.path}: {what}; the file is damaged or truncated: fetch it again")

    def _need(self, nbytes: int, what: str) -> int:
        """Claim the next `nbytes`; returns where they start."""
        at = self._at
        if nbytes > self.file.size - at:
            self._damaged(f"ends within {what} (at byte {at})")
        self._at = at + nbytes
        return at

    def _u32(self, what: str) -> int:
        return int(_U32.unpack_from(self.file.map, self._need(4, what))[0])

    def _u64(self, what: str) -> int:
        return int(_U64.unpack_from(self.file.map, self._need(8, what))[0])

    def _text(self, what: str, limit: int | None = None) -> str:
        length = self._u64(what)
        if limit is not None and length > limit:
            self._damaged(f"{what} is {length} bytes long")
        start = self._need(length, what)
        try:
            return str(self.file.map[start : start + length], "utf-8")
        except UnicodeDecodeError as error:
            self._damaged(f"{what} is not UTF-8 ({error})")

    def _read(self) -> None:
        if self.file.map[:4] != MAGIC:
            raise ModelSourceError(
                f"{self.path}: is not a GGUF file (it begins with {bytes(self.file.map[:4])!r}); "
                "name a .gguf file, or choose another --load-format"
            )
        self._at = 4
        self.version = self._u32("the version")
        if self.version not in VERSIONS:
            if self.version & 0xFFFF == 0 and self.version:
                raise ModelSourceError(f"{self.path}: is a big-endian GGUF file; convert it to little-endian")
            raise ModelSourceError(
                f"{self.path}: has GGUF version {self.version}, but {VERSIONS[0]} and {VERSIONS[1]} can be read; "
                "convert the model again with a current llama.cpp"
            )
        num_tensors = self._u64("the number of tensors")
        num_entries = self._u64("the number of metadata entries")
        for index in range(num_entries):
            key = self._text(f"the key of metadata entry {index}", MAX_NAME_BYTES)
            if key in self.metadata:
                self._damaged(f"the metadata key {key!r} appears twice")
            self.metadata[key] = self._value(self._u32(f"the type of {key!r}"), key)
        self.alignment = self._alignment()
        found = [self._tensor(index) for index in range(num_tensors)]
        self._place(found)

    def _alignment(self) -> int:
        value = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0 or value & (value - 1):
            self._damaged(f"general.alignment is {value!r}, not a power of two")
        return value

    def _value(self, kind: int, key: str) -> Value:
        what = f"the value of {key!r}"
        if scalar := _SCALARS.get(kind):
            number: int | float = scalar.unpack_from(self.file.map, self._need(scalar.size, what))[0]
            return number
        if kind == _BOOL:
            return self.file.map[self._need(1, what)] != 0
        if kind == _STRING:
            return self._text(what)
        if kind == _ARRAY:
            return self._array(key, what)
        self._damaged(f"{what} has the unknown type {kind}")

    def _array(self, key: str, what: str) -> Value:
        kind = self._u32(what)
        count = self._u64(what)
        if kind == _STRING:
            return self._skip_strings(count, what)
        dtype = _ARRAYS.get(kind)
        if dtype is None:
            self._damaged(f"{what} is an array of the unknown type {kind}")
        itemsize = np.dtype(dtype).itemsize
        start = self._need(count * itemsize, what)
        array: NDArray[np.generic] = np.frombuffer(self.file.map, dtype=dtype, count=count, offset=start)
        return array.astype(np.bool_) if kind == _BOOL else array

    def _skip_strings(self, count: int, what: str) -> StringArray:
        start = at = self._at
        size = self.file.size
        if count * SMALLEST_STRING > size - start:
            self._damaged(f"{what} claims {count} strings, more than the file can hold")
        data, unpack = self.file.map, _U64.unpack_from
        try:
            for _ in range(count):
                at += 8 + unpack(data, at)[0]
        except (struct.error, OverflowError):  # the loop has left the file
            self._damaged(f"ends within {what}")
        if at > size:
            self._damaged(f"ends within {what}")
        self._at = at
        return StringArray(start, count)

    def _tensor(self, index: int) -> tuple[str, GgmlType, tuple[int, ...], int]:
        name = self._text(f"the name of tensor {index}", MAX_NAME_BYTES)
        what = f"the description of tensor {name!r}"
        num_dimensions = self._u32(what)
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            self._damaged(f"tensor {name!r} has {num_dimensions} dimensions")
        dimensions = tuple(self._u64(what) for _ in range(num_dimensions))
        elements = 1
        for dimension in dimensions:
            elements *= dimension
        if not 0 < elements < MAX_ELEMENTS:
            self._damaged(f"tensor {name!r} has the impossible shape {dimensions}")
        number = self._u32(what)
        offset = self._u64(what)
        kind = GGML_TYPES.get(number)
        if kind is None:
            raise ModelSourceError(
                f"{self.path}: tensor {name!r} has the unknown type number {number}; "
                "the file is damaged, or newer than this loader"
            )
        return name, kind, dimensions, offset

    def _place(self, found: list[tuple[str, GgmlType, tuple[int, ...], int]]) -> None:
        """Turn offsets within the data section into offsets within the file, and check that all fit side by side."""
        start = -(-self._at // self.alignment) * self.alignment
        for name, kind, dimensions, offset in found:
            if name in self.tensors:
                self._damaged(f"tensor {name!r} appears twice")
            if dimensions[0] % kind.block:
                self._damaged(
                    f"tensor {name!r} has rows of {dimensions[0]}, not whole {kind.name} blocks of {kind.block}"
                )
            if offset % self.alignment:
                self._damaged(f"tensor {name!r} does not start at a multiple of {self.alignment} bytes")
            rows = 1
            for dimension in dimensions[1:]:
                rows *= dimension
            tensor = GgufTensor(
                name, kind, dimensions[::-1], start + offset, rows, dimensions[0] // kind.block * kind.nbytes
            )
            if tensor.offset + tensor.nbytes > self.file.size:
                self._damaged(
                    f"tensor {name!r} should end at byte {tensor.offset + tensor.nbytes}, "
                    f"but the file has {self.file.size}"
                )
            self.tensors[name] = tensor
        ordered = sorted(self.tensors.values(), key=lambda tensor: tensor.offset)
        for before, after in itertools.pairwise(ordered):
            if before.offset + before.nbytes > after.offset:
                self._damaged(f"tensors {before.name!r} and {after.name!r} overlap")
