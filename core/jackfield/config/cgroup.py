"""Limits of the Linux control group that this process runs in (what a container may use). Elsewhere: no limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_UNLIMITED = 2**60
"""Version 1 writes "no limit" as a number near 2**63."""


@dataclass(frozen=True, kw_only=True)
class CgroupLimits:
    """memory: bytes allowed; memory_left: bytes still free of them; cores: CPU time allowed, in cores. None: no limit."""

    memory: int | None = None
    memory_left: int | None = None
    cores: float | None = None


def cgroup_limits(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> CgroupLimits:
    """The tightest limits over this process's group and the groups above it, version 2 or 1 of the interface."""
    memory: list[tuple[int, int]] = []
    cores: list[float] = []
    for controllers, path in _memberships(membership):
        if controllers == "":
            for folder in _upwards(root, path):
                memory += _memory(folder, "memory.max", "memory.current", "inactive_file")
                cores += _cpu_max(folder)
        else:
            for folder in _upwards(root / controllers, path):
                if "memory" in controllers.split(","):
                    memory += _memory(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
                if "cpu" in controllers.split(","):
                    cores += _cpu_quota(folder)
    return CgroupLimits(
        memory=min((limit for limit, _ in memory), default=None),
        memory_left=min((left for _, left in memory), default=None),
        cores=min(cores, default=None),
    )


def _memberships(file: Path) -> list[tuple[str, str]]:
    """(controllers, path) per line; controllers is "" for version 2."""
    text = _read(file)
    rows = [line.split(":", 2) for line in (text or "").splitlines()]
    return [(row[1], row[2]) for row in rows if len(row) == 3]


def _upwards(root: Path, path: str) -> list[Path]:
    """The group's folder and those above it, up to `root`. Inside a container `path` may not exist below `root`: then
    `root` itself is the container's group."""
    parts = [part for part in path.split("/") if part and part != ".."]
    return [root.joinpath(*parts[:n]) for n in range(len(parts), -1, -1)]


def _memory(folder: Path, limit_name: str, used_name: str, reclaimable: str) -> list[tuple[int, int]]:
    limit, used = _number(folder / limit_name), _number(folder / used_name)
    if limit is None or used is None or limit >= _UNLIMITED:
        return []
    # Pages of files that nobody has read lately are given back before the limit bites.
    for line in (_read(folder / "memory.stat") or "").splitlines():
        key, _, value = line.partition(" ")
        if key == reclaimable and value.isdigit():
            used -= int(value)
    return [(limit, max(0, limit - max(0, used)))]


def _cpu_max(folder: Path) -> list[float]:
    words = (_read(folder / "cpu.max") or "").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
        return [int(words[0]) / int(words[1])]
    return []


def _cpu_quota(folder: Path) -> list[float]:
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return [quota / period] if quota is not None and quota > 0 and period else []


def _number(file: Path) -> int | None:
    text = (_read(file) or "").strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _read(file: Path) -> str | None:
    # A group's files may be hidden from a container; a limit that cannot be read cannot be respected.
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return None
