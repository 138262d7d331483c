"""How long the commands that only look take to start, as multiples of `python -c 'import pydantic'`.

    python benchmarks/startup.py [--json] [--rounds N] [--wait SECONDS]

One after the other in turn (A B C D, A B C D, ...), so that a machine that gets slower does so for all; medians of wall and of
CPU time, children included. Wanted: `--help` 3, `plugins list` 3, `explain` 6 (the embedded model, no plugin named).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

from machine import machine_facts

from jackfield.stack.digest import package_digest

BASE = "import pydantic"

RUN = "import sys; from jackfield.entrypoints.cli import main; sys.exit(main(sys.argv[1:]))"
"""What the installed script `jackfield` does."""

COMMANDS = {
    BASE: ["-c", BASE],
    "--help": ["-c", RUN, "--help"],
    "plugins list": ["-c", RUN, "plugins", "list"],
    "explain": ["-c", RUN, "explain", "--device", "cpu"],
}

WANTED = {"--help": 3.0, "plugins list": 3.0, "explain": 6.0}


def once(words: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("JACKFIELD_")}
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=environ)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    parser.add_argument("--rounds", type=int, default=15, help="runs of each (default 15)")
    parser.add_argument("--wait", type=float, default=60.0, help="longest wait for a quiet machine (default 60)")
    given = parser.parse_args(argv)
    machine = machine_facts(given.wait)
    for words in COMMANDS.values():  # bytecode and the disk's cache
        once(words)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(given.rounds):
        for name, words in COMMANDS.items():
            times[name].append(once(words))
    wall, cpu = (
        {name: statistics.median(pair[side] for pair in pairs) for name, pairs in times.items()} for side in (0, 1)
    )
    results = {
        name: {"ratio": wall[name] / wall[BASE], "cpu_ratio": cpu[name] / cpu[BASE], "wanted": wanted}
        for name, wanted in WANTED.items()
    }
    if given.json:
        told = {
            "machine": machine,
            "packages": {"jackfield": package_digest("jackfield")},
            "seconds": wall,
            "cpu_seconds": cpu,
            "results": results,
        }
        json.dump(told, sys.stdout, indent=2)
        print()
        return 0
    for name, figures in results.items():
        print(
            f"{name:14} {figures['ratio']:5.1f} times `{BASE}` ({figures['cpu_ratio']:.1f} in CPU time), "
            f"wanted: {figures['wanted']:.0f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
