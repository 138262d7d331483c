"""What every adapter does alike: the arguments, the clock, the repetitions, and one JSON line. Standard library only.

An adapter makes its engine and hands over a function that runs one repetition. What an engine is, and whether its numbers
are any good, is not known here.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads import WORKLOADS, prompts

WARM_UP = 99
"""The repetition whose prompts warm up; none that is measured has the number."""

MARK = '{"adapter"'
"""How an adapter's line begins: engines write to stdout, too."""


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds since the call of one repetition. first: until the first new token, None where the engine does not say;
    between: tokens that came after those that came first, of a single request (None: all but one)."""

    last: float
    first: float | None = None
    between: int | None = None


Run = Callable[[list[list[int]], int], Times]
"""run(prompts, new tokens of each): greedy, past the end token, exactly so many."""


def parser(description: str | None) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=description, allow_abbrev=False)
    found.add_argument("--test", choices=list(WORKLOADS), required=True)
    found.add_argument("--repetitions", type=int, default=3)
    found.add_argument("--threads", type=int, default=2)
    return found


def speed(test: str, times: Times) -> float:
    """Tokens per second, as the workload counts them."""
    work = WORKLOADS[test]
    if test == "decode":
        if times.first is None:
            raise SystemExit("this engine does not say when the first token came, so that decoding alone has no speed")
        return (times.between or work.new - 1) / (times.last - times.first)
    if test == "prefill":
        return work.prompt / (times.first or times.last)
    return work.requests * work.new / times.last


def measure(
    given: argparse.Namespace,
    run: Run,
    *,
    adapter: str,
    version: str,
    children: bool = False,
    first: Callable[[], list[float]] | None = None,
    **more: Any,
) -> None:
    """Warm up, run the repetitions and print the line.

    children: the engine lives in child processes, whose memory is the one to tell. first: how the workload `first` is measured,
    a time a repetition; None: this process started, loaded the model, and now makes one token.
    """
    work = WORKLOADS[given.test]
    told: dict[str, Any] = {
        "adapter": adapter,
        "version": version,
        "test": given.test,
        "threads": given.threads,
        **more,
    }
    machine, own, began = machine_cpu(), tree_cpu(), time.perf_counter()
    if given.test == "first":
        if first is None:
            run(prompts("first", 0), 1)
            values = [seconds_since_start()]
        else:
            values = first()
    else:
        # One request: a whole repetition. Many: a short one that takes every path, since a whole one is half a minute.
        run(prompts(given.test, WARM_UP)[:8], work.new if work.requests == 1 else 8)
        machine, own, began = machine_cpu(), tree_cpu(), time.perf_counter()
        values = [speed(given.test, run(prompts(given.test, number), work.new)) for number in range(given.repetitions)]
    others = (machine_cpu() - machine) - (tree_cpu() - own)
    told |= {
        "value": statistics.median(values),
        "values": values,
        "other_cores": round(max(0.0, others) / (time.perf_counter() - began), 3),
        "peak_rss_mib": round(tree_peak_rss() if children else own_peak_rss()),
        "peak_rss_ended_children_mib": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
    }
    print(json.dumps(told), flush=True)


def seconds_since_start() -> float:
    """Since the kernel made this process: interpreter and imports included; to a hundredth."""
    ticks = int(_stat("self")[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def machine_cpu() -> float:
    """Seconds of CPU that all processes of the machine have used."""
    words = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(words[:3]) + sum(words[5:])) / os.sysconf("SC_CLK_TCK")  # neither idle nor waiting for a disk


def tree_cpu() -> float:
    """Seconds of CPU of this process and all below it, those that ended included."""
    return sum(sum(int(word) for word in _stat(pid)[11:15]) for pid in _tree()) / os.sysconf("SC_CLK_TCK")


def own_peak_rss() -> float:
    """MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def tree_peak_rss() -> float:
    """MiB of the living processes below this one, added up; pages that they share count for each."""
    total = 0
    for pid in _tree()[1:]:
        for line in _read(pid, "status").splitlines():
            if line.startswith("VmHWM"):
                total += int(line.split()[1])
    return total / 1024


def _tree() -> list[str]:
    """Ids of this process, first, and of all below it."""
    below: dict[str, list[str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (words := _stat(folder.name)):
            below.setdefault(words[1], []).append(folder.name)
    found = [str(os.getpid())]
    for pid in found:  # grows
        found += below.get(pid, [])
    return found


def _stat(pid: str) -> Sequence[str]:
    """The words behind the name, which may hold blanks and parentheses; zeros of a process that has ended meanwhile."""
    return _read(pid, "stat").rpartition(")")[2].split() or ["0"] * 50


def _read(pid: str, file: str) -> str:
    try:
        return Path("/proc", pid, file).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
