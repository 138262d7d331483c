"""Whether this package can serve here: whether its native library is there. No torch."""

from __future__ import annotations

from jackfield.hookspecs import Problem
from jackfield_ops_cpu.library import NativeLibraryMissing, library


def check() -> list[Problem]:
    """What keeps the plugins of this package from serving; empty: nothing."""
    try:
        library()
    except NativeLibraryMissing as error:
        return [Problem(text=str(error))]
    return []
