"""What a benchmark must tell of the machine it ran on, and waiting until nobody else uses it."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

BUSY_SHARE = 0.10
"""A machine is quiet when others use less than this share of its cores."""

SETTLING = (
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "OMP_PROC_BIND",
    "MKL_NUM_THREADS",
    "LD_PRELOAD",
    "OPS_CPU_ISA",
)
"""Variables of the environment that change what arithmetic costs and are no settings of ours, which `args` tells."""

PACKAGES = ("jackfield", "numpy", "torch", "tokenizers", "transformers")
"""Distributions whose versions are told, where they are installed. None is imported for it."""


def machine_facts(wait: float, **more: Any) -> dict[str, Any]:
    """Waits at most so many seconds for a quiet machine, then says what it is and whether it was quiet."""
    return {
        "quiet": wait_until_quiet(wait),
        "cores": os.cpu_count(),
        "cpu": _cpu_name(),
        **more,
        "python": platform.python_version(),
    }


def software_facts() -> dict[str, str]:
    """Distribution -> version. Editable installs may lie: the stack's hash is what identifies the code."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"system": platform.platform(), "python": platform.python_version(), **found}


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that change what is measured, as they are set."""
    return {name: environ[name] for name in SETTLING if name in environ}


def wait_until_quiet(seconds: float) -> bool:
    """False: others were still busy after so long, and the numbers are to be taken as such. 0: only looks, for a moment."""
    until, told = time.monotonic() + seconds, False
    while (busy := _busy_share(1.0 if seconds >= 1 else 0.2)) is not None and busy > BUSY_SHARE:
        if time.monotonic() >= until:
            print(f"the machine is not quiet: {busy:.0%} of it is in use by others", file=sys.stderr)
            return False
        if not told:
            told = True
            message = (
                f"{busy:.0%} of the machine is in use by others: waiting up to {seconds:g} s (--wait) until it is quiet"
            )
            print(message, file=sys.stderr)
    return True


def busy_seconds() -> float | None:
    """CPU seconds that all processes of the machine have used since it started; None where there is no /proc."""
    if (times := _cpu_times()) is None:
        return None
    return (sum(times) - times[3] - times[4]) / os.sysconf("SC_CLK_TCK")  # but for idle, and waiting for a disk


def _busy_share(seconds: float) -> float | None:
    """Share of all cores in use during a time in which this process sleeps; None where there is no /proc."""
    if (first := _cpu_times()) is None:
        return None
    time.sleep(seconds)
    second = _cpu_times()
    assert second is not None
    total = sum(second) - sum(first)
    idle = (second[3] + second[4]) - (first[3] + first[4])
    return 1 - idle / total if total else 0.0


def _cpu_times() -> list[int] | None:
    """Ticks: user, nice, system, idle, iowait, irq, softirq, steal."""
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
