"""Turns a lack of memory during the start into `InsufficientMemory`, which says in which stage it was and what to lower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from jackfield.hookspecs import InsufficientMemory

_CPU_ALLOCATOR = "DefaultCPUAllocator"  # a lack of host memory is a plain RuntimeError to torch


@contextmanager
def stage(doing: str, advice: str) -> Iterator[None]:
    """doing: such as "loading the weights"; advice: what to change. Raises InsufficientMemory where torch or the system has no
    memory left; any other error passes."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_lack_of_memory(error):
            raise
        told = str(error).strip().splitlines()
        raise InsufficientMemory(f"out of memory while {doing}{f' ({told[0]})' if told else ''}: {advice}") from error


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether that is what it says."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or _CPU_ALLOCATOR in str(error)
