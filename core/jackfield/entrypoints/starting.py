"""What a process does otherwise while it starts: it leaves garbage alone, and gives memory back that only the start needed."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic garbage is looked for inside. Importing torch and reading a vocabulary make hundreds of thousands of objects that
    stay; to look through all of them again and again takes a tenth of the start."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def keep_what_is_there() -> None:
    """The collector never looks again at what exists now, so that a full collection does not hold up a step for a tenth of a
    second. For a process of our own alone: garbage that somebody else has left by now would stay for ever."""
    gc.freeze()


def give_memory_back() -> None:
    """Return what is free on the C heap to the system: tens of megabytes once a tokenizer is built or weights are decoded. Only
    glibc keeps so much, and only it has the call."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(ctypes.c_size_t(0))
