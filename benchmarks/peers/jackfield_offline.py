"""Jackfield, its Engine in one process: `jackfield bench offline`, whose document becomes the line of all adapters.

Flags that are not this script's are Jackfield's own.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import Any

from measuring import machine_cpu, parser, tree_cpu


def line(told: dict[str, Any], test: str, threads: int, others: float) -> dict[str, Any]:
    """An adapter's line, of what `jackfield bench offline --json` tells. others: cores that others used while it ran, where its
    rounds say nothing of that."""
    rounds, memory = told["rounds"], told["peak_rss_mib"]
    figure = told["results"][told["workload"]["figure"]]
    busy = [one["other_cores"] for one in rounds if one.get("other_cores") is not None]
    return {
        "adapter": "jackfield",
        "version": told["versions"]["jackfield"],
        "test": test,
        "threads": threads,
        "value": statistics.median(figure["rounds"]),
        "values": figure["rounds"],
        "other_cores": max(busy, default=others),
        "peak_rss_mib": round(memory["self"] + sum(memory["living_children"])),
        "stack": told["stack"],
        "versions": told["versions"],
    }


def main() -> None:
    given, flags = parser(__doc__).parse_known_args()
    command = [
        sys.executable,
        "-m",
        "jackfield",
        "bench",
        "offline",
        "--workload",
        given.test,
        "--json",
        "-",
        "--wait",
        "0",
    ]
    command += ["--repeat", str(given.repetitions), "--threads", str(given.threads), *flags]
    machine, own, began = machine_cpu(), tree_cpu(), time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    others = ((machine_cpu() - machine) - (tree_cpu() - own)) / (time.perf_counter() - began)
    if done.returncode:  # it has said why
        raise SystemExit(done.returncode)
    print(json.dumps(line(json.loads(done.stdout), given.test, given.threads, round(max(0.0, others), 3))), flush=True)


if __name__ == "__main__":
    main()
