"""The directory of cache files: one for each key, written beside and renamed into place, the oldest given up for room.

Several processes may use it at once. A file that another has mapped can be replaced or removed: whoever maps it keeps it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from jackfield.model_executor.weight_cache.packed_file import Damaged, PackedFile, PackedWriter

logger = logging.getLogger(__name__)

SUFFIX = ".packed"
UNFINISHED = ".unfinished"


class CacheDirectory:
    """max_bytes: of all files together; the one that was just written stays, and must fit by itself."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self.max_bytes = max_bytes

    def open(self, key: Mapping[str, Any]) -> PackedFile | None:
        """The file of a key, which now is the newest; None if there is none. A damaged one is removed, one that cannot be read is
        left where it is, both with a warning."""
        path = self._place(key)
        try:
            found = PackedFile(path, key)
        except FileNotFoundError:
            return None
        except OSError as error:  # no descriptor or no memory is left, or it is somebody else's: it may be sound
            logger.warning("%s of packed weights cannot be read, so they are made anew: %s", path, error)
            return None
        except (Damaged, ValueError, KeyError, TypeError) as error:
            logger.warning("%s of packed weights is damaged and is made anew: %s", path, error)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):  # a directory that may only be read
            os.utime(path)
        return found

    def begin(self, key: Mapping[str, Any]) -> Unfinished:
        """A new file for a key. Raises OSError."""
        return Unfinished(self, key)

    def make_room(self, kept: Path) -> None:
        """Remove the files that were not used for longest until all fit, and what writers that died have left."""
        found = []
        for entry in self.path.iterdir():
            if entry.name.endswith(UNFINISHED):
                _remove_if_left(entry)
            elif entry.name.endswith(SUFFIX):
                with contextlib.suppress(OSError):  # another process removed it
                    told = entry.stat()
                    found.append((told.st_mtime_ns, told.st_size, entry))
        total = sum(size for _, size, _ in found)
        for _, size, entry in sorted(found):
            if total <= self.max_bytes:
                return
            if entry != kept:
                logger.info("packed weights in %s take more than is allowed: %s is removed", self.path, entry.name)
                with contextlib.suppress(OSError):
                    entry.unlink()
                total -= size

    def _place(self, key: Mapping[str, Any]) -> Path:
        text = json.dumps(dict(key), sort_keys=True)
        return self.path / (hashlib.sha256(text.encode()).hexdigest()[:40] + SUFFIX)


class Unfinished:
    """A file that is being written. The lock on it tells others that its writer lives."""

    def __init__(self, directory: CacheDirectory, key: Mapping[str, Any]) -> None:
        self._directory = directory
        self._place = directory._place(key)
        made = tempfile.NamedTemporaryFile(  # noqa: SIM115  it lives until `finish` or `drop`
            dir=directory.path, prefix=".", suffix=UNFINISHED, delete=False
        )
        self._path = Path(made.name)
        self._file = cast(BinaryIO, made)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.writer = PackedWriter(self._file, key)

    def finish(self) -> int:
        """Bytes of the file, which is now in its place. Raises OSError, and then nothing is left of it."""
        try:
            self.writer.finish()
            os.replace(self._path, self._place)
        except BaseException:
            self.drop()
            raise
        self._file.close()
        self._directory.make_room(self._place)
        return self.writer.written

    def drop(self) -> None:
        """Give it up."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        with contextlib.suppress(OSError):  # what is still in its buffer may not fit on the disk either
            self._file.close()


def _remove_if_left(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its writer lives
        path.unlink()
