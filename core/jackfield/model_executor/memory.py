"""How large the KV pool becomes: memory that is available, and the tokens that go into a share of it.

It knows bytes and pages, not models. A pool that does not fit is an error here, before anything is allocated: an
operating system that overcommits would end the process later instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import torch

from jackfield.hookspecs import InsufficientMemory

if TYPE_CHECKING:
    from jackfield.model_executor.device import Device

__all__ = ["InsufficientMemory", "available_bytes", "gib", "host_available", "pool_tokens", "set_aside"]

CPU_SHARE = 0.2  # of the memory available after the weights are loaded: the machine has other uses for it
CPU_MOST_TOKENS = 65536  # more is rarely used on a CPU, and costs start-up time and memory all the same
CUDA_SHARE = 0.8  # of the memory free after the weights are loaded; the rest is for activations and scratch

_CGROUP_V2 = ("memory.max", "memory.current", "memory.stat")
_CGROUP_V1 = ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat")


def pool_tokens(*, wanted: int | None, page_size: int, page_bytes: int, available: int, device: torch.device) -> int:
    """Tokens of the KV pool, a multiple of `page_size`, the dummy page not counted.

    wanted: `--max-total-tokens`, rounded down to pages; None: choose. Raises InsufficientMemory.
    """
    fitting = max(0, available // page_bytes - 1) * page_size  # one page goes to the dummy
    if wanted is not None:
        tokens = wanted // page_size * page_size
        if tokens == 0:
            raise InsufficientMemory(
                f"--max-total-tokens {wanted} is less than one page of {page_size} tokens; raise it or lower --page-size"
            )
        if tokens > fitting:
            raise InsufficientMemory(
                f"a KV pool of {tokens} tokens takes {gib((tokens // page_size + 1) * page_bytes)}, but {device} has "
                f"{gib(available)} available: lower --max-total-tokens to {fitting} or less"
            )
        return tokens
    if device.type == "cpu":
        tokens = min(CPU_MOST_TOKENS, set_aside(available, device) * page_size // page_bytes)
    else:
        tokens = set_aside(available, device) * page_size // page_bytes
    tokens = min(tokens, fitting) // page_size * page_size
    if tokens == 0:
        raise InsufficientMemory(
            f"not one page of {page_size} tokens ({gib(page_bytes)}) fits into the memory of {device} set aside for KV "
            f"({gib(available)} available): free memory, lower --page-size, or name --max-total-tokens"
        )
    return tokens


def available_bytes(device: Device) -> int:
    """Bytes that could be allocated there now."""
    return device.memory().free


def host_available() -> int:
    """Bytes of the host's memory that could be allocated now: the smaller of what the machine and the container's limit leave."""
    machine = int(psutil.virtual_memory().available)
    container = cgroup_available(Path("/sys/fs/cgroup"))
    return machine if container is None else min(machine, container)


def cgroup_available(root: Path) -> int | None:
    """What a container's memory limit leaves, file cache counted as available; None without a limit."""
    for limit_name, usage_name, stat_name in (_CGROUP_V2, _CGROUP_V1):
        try:
            limit_text = (root / limit_name).read_text().strip()
            usage = int((root / usage_name).read_text())
            stat = dict(line.split() for line in (root / stat_name).read_text().splitlines())
        except OSError:
            continue  # this version of the interface is not there
        if limit_text == "max" or int(limit_text) >= 1 << 60:  # version 1 writes a huge number for "no limit"
            return None
        cache = int(stat.get("inactive_file", 0)) + int(stat.get("active_file", 0))
        return max(0, int(limit_text) - usage + cache)
    return None


def set_aside(available: int, device: torch.device) -> int:
    """Bytes that a KV pool whose size nobody named may take."""
    return int((CPU_SHARE if device.type == "cpu" else CUDA_SHARE) * available)


def gib(count: int) -> str:
    """Bytes in words."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**27 else f"{count / 2**20:.2f} MiB"
