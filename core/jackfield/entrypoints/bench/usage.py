"""What this process and its children use: CPU time, peak memory, and how many cores others kept busy meanwhile.

Children that ended count as far as the kernel adds them to their parent; grandchildren whose parent did not wait for them do not.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from jackfield.entrypoints.bench.machine import busy_seconds

MIB = 1024 * 1024


@dataclass(frozen=True)
class Usage:
    """A moment. cpu: seconds of this process, its living and its ended children; busy: of all processes, None if not known."""

    at: float
    cpu: float
    busy: float | None

    @classmethod
    def now(cls) -> Usage:
        own = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        for child in _living():
            try:
                times = child.cpu_times()
            except psutil.Error:
                continue
            own += times.user + times.system + times.children_user + times.children_system
        return cls(at=time.perf_counter(), cpu=own, busy=busy_seconds())

    def since(self, before: Usage) -> dict[str, float | None]:
        """cpu_seconds of ours; other_cores: how many cores others kept busy on average, None where it is not known. The kernel
        counts whole ticks (10 ms), so it says nothing of a time much shorter than a second."""
        ours, seconds = self.cpu - before.cpu, self.at - before.at
        if self.busy is None or before.busy is None:
            others = None
        else:
            others = max(0.0, self.busy - before.busy - ours) / seconds
        return {"cpu_seconds": round(ours, 4), "other_cores": None if others is None else round(others, 3)}


def peak_memory() -> dict[str, Any]:
    """Peak resident MiB: `self`, `living_children` (a list), `largest_ended_child`. A page that two processes share counts in
    both."""
    children = [peak for child in _living() if (peak := _high_water(child.pid)) is not None]
    own = _high_water("self")
    return {
        "self": _mib(_max_rss(resource.RUSAGE_SELF) if own is None else own),
        "living_children": sorted((_mib(peak) for peak in children), reverse=True),
        "largest_ended_child": _mib(_max_rss(resource.RUSAGE_CHILDREN)),
    }


def _living() -> list[psutil.Process]:
    try:
        return psutil.Process().children(recursive=True)
    except psutil.Error:
        return []


def _high_water(pid: int | str) -> int | None:
    """Bytes; of the program that runs now: `getrusage` would count what stood in its place before it was executed."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)


def _max_rss(who: int) -> int:
    # KiB, but bytes on macOS.
    peak = resource.getrusage(who).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _mib(count: int) -> float:
    return round(count / MIB, 1)
