"""A file mapped into memory. Knows no format."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import ModelSourceError

HELD_BYTES = 32 * 2**20
"""So much of a file that was handed out stays in memory; what takes weights has made something of them by then."""

Given = TypeVar("Given")


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

    def forget(self) -> None:
        """Give up the memory of pages that were read. They are read again, most likely out of the system's cache, where somebody
        still looks at a view."""
        self.map.madvise(mmap.MADV_DONTNEED)

    def view(self, start: int, nbytes: int) -> NDArray[np.uint8]:
        """uint8 [nbytes], no copy. The caller has checked the bounds."""
        return np.frombuffer(self.map, dtype=np.uint8, count=nbytes, offset=start)


def forgetting(given: Iterable[tuple[MappedFile, int, Given]]) -> Iterator[Given]:
    """Hand out the last of (file, bytes of it, what was made of them), and give up the memory behind, so that a model that is
    loaded does not lie in memory twice."""
    file: MappedFile | None = None
    held = 0
    for owner, nbytes, one in given:
        if file is not None and (owner is not file or held >= HELD_BYTES):
            file.forget()
            held = 0
        file = owner
        held += nbytes
        yield one
    if file is not None:
        file.forget()
