"""The memory that a process could allocate now, on this machine and within its container's limit."""

from __future__ import annotations

from pathlib import Path

import psutil

_CGROUP_V2 = ("memory.max", "memory.current", "memory.stat")
_CGROUP_V1 = ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat")


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
