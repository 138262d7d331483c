"""Measure Jackfield and the installed peers in turn, in one run on this machine, and write what came of it as one JSON document.

    . FOLDER/env.sh                                             # of setup.sh
    python benchmarks/peers/run.py --out results.json           # everything: an hour
    python benchmarks/peers/run.py --out quick.json --quick     # the ones that matter, few rounds: ten minutes
    python benchmarks/peers/run.py --out some.json --only 'bf16|BF16' --tests decode,batch --rounds 2

Run it with Jackfield's own Python, with nothing else at work: it waits for a quiet machine and measures again what others
disturbed. The document is written after each measurement. table.py makes the page of it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from machine import machine_facts  # noqa: E402
from plan import Entry, PlanError, read_plan  # noqa: E402
from turns import Manner, measurements, start_adapter  # noqa: E402
from workloads import WORKLOADS  # noqa: E402

SCHEMA = 1

PEAK = "import resource, torch; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the document")
    parser.add_argument("--plan", type=Path, default=HERE / "plan.toml", metavar="FILE")
    parser.add_argument("--only", default="", metavar="REGEX", help="entries whose name it is found in")
    parser.add_argument("--tests", default=",".join(WORKLOADS), metavar="NAME,...", help="(default: all)")
    parser.add_argument("--rounds", type=int, metavar="N", help="of each test, and not the plan's")
    parser.add_argument("--quick", action="store_true", help="only the plan's quick tests, with its quick rounds")
    parser.add_argument("--threads", type=int, default=2, help="of each engine (default 2)")
    parser.add_argument(
        "--noise", type=float, default=0.15, metavar="CORES", help="most that others may use (default 0.15)"
    )
    parser.add_argument("--tries", type=int, default=3, help="of a disturbed measurement (default 3)")
    parser.add_argument(
        "--wait", type=float, default=60.0, metavar="SECONDS", help="for quiet before each (default 60)"
    )
    parser.add_argument(
        "--limit", type=float, default=400.0, metavar="SECONDS", help="of one measurement (default 400)"
    )
    given = parser.parse_args(argv)
    given.tests = given.tests.split(",")
    if unknown := [test for test in given.tests if test not in WORKLOADS]:
        parser.error(f"--tests: {', '.join(unknown)} is none; there are {', '.join(WORKLOADS)}")
    return given


def chosen(entries: Sequence[Entry], only: str) -> tuple[list[Entry], dict[str, str]]:
    """Those to run, and the reason of each that is not there."""
    wanted = [entry for entry in entries if re.search(only, entry.name)]
    left = {
        entry.name: f"{', '.join(f'${name}' for name in entry.missing)} is not set: see setup.sh"
        for entry in wanted
        if entry.missing
    }
    return [entry for entry in wanted if not entry.missing], left


def main(argv: Sequence[str] | None = None) -> int:
    given = arguments(argv)
    try:
        plan = read_plan(given.plan, {**os.environ, "HERE": sys.executable})
    except PlanError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    entries, left = chosen(plan.entries, given.only)
    for name, reason in left.items():
        print(f"left out: {name} ({reason})", file=sys.stderr)
    if not entries:
        print("run.py: no entry is left to measure", file=sys.stderr)
        return 2
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(given.wait, threads=given.threads),
        "import_torch_mib": float(subprocess.check_output([sys.executable, "-c", PEAK])),
        "quick": given.quick,
        "weights_bytes": {entry.name: Path(entry.weights).stat().st_size for entry in entries if entry.weights},
        "left_out": left,
        "measurements": [],
    }
    manner = Manner(
        threads=given.threads,
        quick=given.quick,
        noise=given.noise,
        tries=given.tries,
        wait=given.wait,
        limit=given.limit,
    )
    began = time.monotonic()
    for record in measurements(plan, entries, given.tests, given.rounds, manner, start_adapter):
        told["measurements"].append(record)
        told["seconds"] = round(time.monotonic() - began)
        write(told, given.out)
        print(f"{told['seconds']:5} s  {line(record)}", file=sys.stderr, flush=True)
    return 1 if any("error" in record for record in told["measurements"]) else 0


def line(record: dict[str, Any]) -> str:
    what = f"{record['test']:8} round {record['round']}  {record['entry']:36}"
    if "error" in record:
        return f"{what} FAILED: {record['error']}"
    others = "" if record["other_cores"] is None else f", others {record['other_cores']:.2f} cores"
    disturbed = "  DISTURBED" if record["disturbed"] else ""
    return f"{what} {record['value']:8.2f}  (read {record['read_gbps']:.1f} GB/s{others}){disturbed}"


def write(told: dict[str, Any], file: Path) -> None:
    """Whole or not at all: a run may be ended at any time."""
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps(told, indent=1) + "\n")
    part.replace(file)


if __name__ == "__main__":
    sys.exit(main())
