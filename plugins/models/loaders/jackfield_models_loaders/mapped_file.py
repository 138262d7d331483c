"""A file mapped into memory. Knows no format."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import ModelSourceError


class MappedFile:
    """The bytes of a file, mapped copy-on-write: nothing is read before it is used, and nobody can change the file.

    Copy-on-write rather than read-only, because torch takes a writable array without a copy and warns at any other.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.size = file.seek(0, 2)
                if self.size == 0:
                    raise ModelSourceError(f"{path}: is empty; fetch the file again")
                self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except OSError as error:
            raise ModelSourceError(f"{path}: cannot be opened: {error.strerror or error}") from error

    def view(self, start: int, nbytes: int) -> NDArray[np.uint8]:
        """uint8 [nbytes], no copy. The caller has checked the bounds."""
        return np.frombuffer(self.map, dtype=np.uint8, count=nbytes, offset=start)
