"""What a benchmark must tell of the machine it ran on, and waiting until nobody else uses it."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

BUSY_SHARE = 0.10
"""A machine is quiet when others use less than this share of its cores."""


def machine_facts(wait: float, **more: Any) -> dict[str, Any]:
    """Waits at most so many seconds for a quiet machine, then says what it is and whether it was quiet."""
    return {
        "quiet": wait_until_quiet(wait),
        "cores": os.cpu_count(),
        "cpu": _cpu_name(),
        **more,
        "python": platform.python_version(),
    }


def wait_until_quiet(seconds: float) -> bool:
    """False: others were still busy after so long, and the numbers are to be taken as such."""
    until = time.monotonic() + seconds
    while (busy := _busy_share()) is not None and busy > BUSY_SHARE:
        if time.monotonic() >= until:
            print(f"the machine is not quiet: {busy:.0%} of it is in use by others", file=sys.stderr)
            return False
        print(f"waiting for a quiet machine: {busy:.0%} of it is in use", file=sys.stderr)
    return True


def _busy_share() -> float | None:
    """Share of all cores in use during a second in which this process sleeps; None where there is no /proc."""
    if (first := _cpu_times()) is None:
        return None
    time.sleep(1.0)
    second = _cpu_times()
    assert second is not None
    total = sum(second) - sum(first)
    idle = (second[3] + second[4]) - (first[3] + first[4])  # idle and waiting for a disk
    return 1 - idle / total if total else 0.0


def _cpu_times() -> list[int] | None:
    try:
        line = Path("/proc/stat").read_text().splitlines()[0]
    except OSError:
        return None
    return [int(word) for word in line.split()[1:9]]


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
