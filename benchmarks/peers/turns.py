"""Measures the entries of a plan in turn: a process for each measurement, on a quiet machine, disturbed ones again.

A B C A B C ...: a machine that gets slower does so for all, and the sides of a ratio were measured next to each other. Knows
how to start an adapter and read its line, and nothing of engines.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import wait_until_quiet
from measuring import MARK
from plan import Entry, Plan

ADAPTERS = Path(__file__).resolve().parent

LAST_WORDS = 500
"""Characters of an adapter's stderr that are kept when it fails."""


@dataclass(frozen=True, kw_only=True)
class Manner:
    """noise: most cores that others may keep busy during a measurement; tries: of a disturbed one, the calmest counts; wait: most
    seconds for a quiet machine before each; limit: seconds after which an adapter is ended."""

    threads: int
    quick: bool
    noise: float
    tries: int
    wait: float
    limit: float


Start = Callable[[Entry, Sequence[str], float], dict[str, Any]]
"""start(entry, the adapter's flags, seconds) -> its line, or {"error": ...}."""


def measurements(
    plan: Plan, entries: Sequence[Entry], tests: Sequence[str], rounds: int | None, manner: Manner, start: Start
) -> Iterator[dict[str, Any]]:
    """One record a measurement: entry, test, round, tries, what the adapter told, and the read bandwidth just before it.

    rounds: of each test; None: the plan's. An entry that failed in a round is not tried in that test's other rounds.
    """
    for test in tests:
        count, repetitions = plan.tests[test].of(manner.quick)
        failed: set[str] = set()
        for number in range(count if rounds is None else rounds):
            for entry in entries:
                if test not in (entry.quick if manner.quick else entry.tests) or entry.name in failed:
                    continue
                record = {"entry": entry.name, "test": test, "round": number} | _one(
                    entry, test, repetitions, manner, start
                )
                if "error" in record:
                    failed.add(entry.name)
                yield record


def _one(entry: Entry, test: str, repetitions: int, manner: Manner, start: Start) -> dict[str, Any]:
    flags = ["--test", test, "--repetitions", str(repetitions), "--threads", str(manner.threads)]
    found: list[dict[str, Any]] = []
    while len(found) < manner.tries:
        quiet = wait_until_quiet(manner.wait)
        bandwidth = read_bandwidth(manner.threads)
        began = time.time()
        told = start(entry, flags, manner.limit)
        found.append({"at": began, "quiet": quiet, "read_gbps": bandwidth, **told, "seconds": time.time() - began})
        if "error" in told or _noise(told) <= manner.noise:
            break
    best = min(found, key=lambda one: (("error" in one), _noise(one)))
    return {**best, "tries": len(found), "disturbed": "error" not in best and _noise(best) > manner.noise}


def _noise(told: dict[str, Any]) -> float:
    """Of a measurement that says none, none is known."""
    return told.get("other_cores") or 0.0


def read_bandwidth(threads: int) -> float:
    """GB/s now, by a process of its own."""
    command = [sys.executable, str(ADAPTERS / "read_bandwidth.py"), str(threads)]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return float(told["read_gbps"])


def start_adapter(entry: Entry, flags: Sequence[str], seconds: float) -> dict[str, Any]:
    """The line that an adapter prints; {"error": ...} if it fails, prints none or takes too long. Ends all that it started."""
    environ = {**os.environ, "HF_HUB_OFFLINE": "1", **entry.environment}
    with subprocess.Popen(
        [*entry.command, *flags],
        cwd=ADAPTERS,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, said = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return {"error": f"no answer in {seconds:g} s"}
        finally:
            with suppress(ProcessLookupError):  # nothing of it is left
                os.killpg(process.pid, signal.SIGKILL)
    lines = [line for line in out.splitlines() if line.startswith(MARK)]
    if process.returncode or not lines:
        return {"error": f"ended with {process.returncode}: {said.strip()[-LAST_WORDS:]}"}
    told: dict[str, Any] = json.loads(lines[-1])
    return told
