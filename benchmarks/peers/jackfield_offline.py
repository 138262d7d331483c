"""Jackfield, its Engine in one process: `jackfield bench offline`, whose document becomes the line of all adapters.

Flags that are not this script's are Jackfield's own.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

from measuring import parser


def line(told: dict[str, Any], test: str, threads: int) -> dict[str, Any]:
    """An adapter's line, of what `jackfield bench offline --json` tells."""
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
        "other_cores": max(busy, default=None),
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
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:  # it has said why
        raise SystemExit(done.returncode)
    print(json.dumps(line(json.loads(done.stdout), given.test, given.threads)), flush=True)


if __name__ == "__main__":
    main()
