"""Blocks as files under one directory, one a block, named by the key, which says all that the bytes depend on.

A file is written beside its place and renamed into it, so that a reader sees all of it or nothing. What is not a whole
block with the right checksum is no block: it is deleted when it is met. Files of other names are never touched.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from jackfield.hookspecs import KVTier, TierUse
from jackfield_cache_tiers.lru import LruIndex
from jackfield_cache_tiers.options import DiskOptions

MAGIC = b"jackfield-kv-1\n"
_DIGEST = hashlib.sha256().digest_size
HEADER = len(MAGIC) + 2 * _DIGEST
"""Bytes before the block: the magic, the key, the checksum of key and block."""
_NAME = re.compile(r"[0-9a-f]{64}\.kv")
_PART = "part-"
PART_SECONDS = 3600.0
"""An unfinished file of that age is that of a run that was killed."""


class DiskTier(KVTier):
    """Two processes may share a directory: both read and write whole files, and what one deletes is a miss of the other."""

    def __init__(self, options: DiskOptions, block_bytes: int) -> None:
        """Makes the directory and reads its index. Raises OSError."""
        self.rule = options.rule()
        self._clears = options.clear_on_flush
        self._block_bytes = block_bytes
        if options.path.exists() and not options.path.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, "the option path names something else than a directory", str(options.path)
            )
        options.path.mkdir(parents=True, exist_ok=True)
        self._root = options.path.resolve(strict=True)
        self._index = LruIndex(options.size_mib * 2**20)
        for part in self._root.glob(f"{_PART}*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - part.stat().st_mtime > PART_SECONDS:
                    part.unlink()
        found = sorted(self._files(), key=lambda file: file[1].st_mtime_ns)
        for key, stat in found:
            self._delete_all(self._index.add(key, stat.st_size))

    def has(self, key: bytes) -> bool:
        return key in self._index

    def get(self, key: bytes) -> bytes | None:
        """Raises OSError or ValueError for a file that cannot be used; it is forgotten then."""
        file = self._file(key)
        try:
            data = file.read_bytes()
            block = data[HEADER:]
            if data[:HEADER] != _header(key, block) or len(block) != self._block_bytes:
                raise ValueError("a KV file is damaged, or is none of this run: its header or size is wrong")
            os.utime(file)  # the order of use outlasts a restart
        except FileNotFoundError:
            self._index.drop(key)
            return None
        except (OSError, ValueError):
            self._delete_all([key])
            self._index.drop(key)
            raise
        self._index.touch(key)
        return block

    def put(self, key: bytes, block: bytes) -> None:
        """Raises OSError."""
        handle, part = tempfile.mkstemp(prefix=_PART, dir=self._root)
        try:
            with open(handle, "wb") as file:
                file.write(_header(key, block))
                file.write(block)
            os.replace(part, self._file(key))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise
        self._delete_all(self._index.add(key, HEADER + len(block)))

    def clear(self) -> None:
        if self._clears:
            self._delete_all(self._index.clear())

    def use(self) -> TierUse:
        return self._index.use()

    def _files(self) -> Iterator[tuple[bytes, os.stat_result]]:
        with os.scandir(self._root) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):
                        yield bytes.fromhex(entry.name[:64]), entry.stat(follow_symlinks=False)

    def _file(self, key: bytes) -> Path:
        return self._root / f"{key.hex()}.kv"

    def _delete_all(self, keys: list[bytes]) -> None:
        for key in keys:
            with contextlib.suppress(FileNotFoundError):
                self._file(key).unlink()


def _header(key: bytes, block: bytes) -> bytes:
    return MAGIC + key + hashlib.sha256(key + block).digest()
