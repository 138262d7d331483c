"""CPU time of any process of this user, from /proc; of this one alone where there is no /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_UTIME, _STIME = 11, 12
"""Fields of /proc/<pid>/stat, counted from behind the name, which may hold spaces and brackets."""


def cpu_seconds(pid: int) -> float | None:
    """User and system time so far. None: it cannot be known, or the process is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return time.process_time() if pid == os.getpid() else None
    fields = text.rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS
