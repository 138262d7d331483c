"""The bytes of one cache file: sections of packed weights at page boundaries, and a JSON table of them at the end.

    0      magic, offset and length of the table, length of the file, SHA-256 of the table
    4096   sections, each at a multiple of 4,096
    ...    the table: {"key": ..., "items": {name: {"offset", "nbytes", "sample", "header"}}}

The first 64 bytes are written last, so that a file which was not finished is none. A sample of each section's bytes is compared
when it is taken: it notices what was lost or stands in the wrong place, not a single bit. It knows no directory and no weight.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 4096
MAGIC = b"JFPACK02"
SAMPLED_BYTES = 4096
SAMPLED_EVERY = 2**20
_PREFIX = struct.Struct("<8sQQQ32s")


class Damaged(Exception):
    """The file is not what a writer left. The text says why."""


def sample(data: NDArray[np.uint8]) -> int:
    """CRC-32 of the first 4 KiB of every MiB and of the last 4 KiB: all of it would cost a warm start as much as reading it."""
    found = 0
    for start in range(0, data.size, SAMPLED_EVERY):
        found = zlib.crc32(data[start : start + SAMPLED_BYTES].data, found)
    return zlib.crc32(data[-SAMPLED_BYTES:].data, found)


class PackedWriter:
    """Writes one file from its beginning to its end. Raises OSError as the disk does.

    written    bytes so far
    """

    def __init__(self, file: BinaryIO, key: Mapping[str, Any]) -> None:
        self._file = file
        self._key = dict(key)
        self._items: dict[str, dict[str, Any]] = {}
        self.written = ALIGNMENT
        file.seek(ALIGNMENT)

    def add(self, name: str, header: Mapping[str, Any], data: NDArray[np.uint8]) -> None:
        """One section. ValueError for a name that is there, TypeError for a header that JSON does not know."""
        if name in self._items:
            raise ValueError(f"{name} is packed twice")
        json.dumps(dict(header))
        data = np.ascontiguousarray(data)
        self._items[name] = {
            "offset": self.written,
            "nbytes": int(data.nbytes),
            "sample": sample(data),
            "header": dict(header),
        }
        self._file.write(data.data)
        padding = -data.nbytes % ALIGNMENT
        self._file.write(bytes(padding))
        self.written += data.nbytes + padding

    def finish(self) -> None:
        """The table and then the prefix, all of it on the disk when this returns."""
        table = json.dumps({"key": self._key, "items": self._items}, sort_keys=True).encode()
        self._file.write(table)
        size = self.written + len(table)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.seek(0)
        self._file.write(_PREFIX.pack(MAGIC, self.written, len(table), size, hashlib.sha256(table).digest()))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.written = size


class PackedFile:
    """A finished file, mapped read-only. Its sections stay valid as long as somebody holds one.

    Raises Damaged, or OSError if there is no such file.
    """

    def __init__(self, path: Path, key: Mapping[str, Any]) -> None:
        with path.open("rb") as file:
            prefix = file.read(_PREFIX.size)
            if len(prefix) < _PREFIX.size:
                raise Damaged(f"has {len(prefix)} bytes only")
            magic, offset, length, size, digest = _PREFIX.unpack(prefix)
            if magic != MAGIC:
                raise Damaged("does not begin as such a file does")
            real = os.fstat(file.fileno()).st_size
            if real != size or offset + length != size:
                raise Damaged(f"has {real} bytes where {size} were written")
            file.seek(offset)
            table = file.read(length)
            if hashlib.sha256(table).digest() != digest:
                raise Damaged("its table does not have the checksum that was written")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        told = json.loads(table)
        if told["key"] != dict(key):
            raise Damaged("it was made for something else")
        self._items: dict[str, dict[str, Any]] = told["items"]
        for name, item in self._items.items():
            if item["offset"] % ALIGNMENT or item["offset"] + item["nbytes"] > offset:
                raise Damaged(f"the section {name} lies outside the file")

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def names(self) -> Iterator[str]:
        """In the order in which they were written."""
        return iter(sorted(self._items, key=lambda name: self._items[name]["offset"]))

    def section(self, name: str) -> tuple[dict[str, Any], NDArray[np.uint8]]:
        """(header, bytes), the bytes a read-only view of the file. KeyError for an unknown name, Damaged for bytes that are not
        those that were written."""
        item = self._items[name]
        data = np.frombuffer(self._map, dtype=np.uint8, count=item["nbytes"], offset=item["offset"])
        if sample(data) != item["sample"]:
            raise Damaged(f"the section {name} does not hold the bytes that were written")
        return item["header"], data
