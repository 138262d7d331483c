"""Prove and time the CUDA plugins on the GPU of this machine, in under eight minutes: a table, and a JSON document.

    python benchmarks/gpu/run.py --out results.json     # on a GPU
    python benchmarks/gpu/run.py --tiny                 # on a CPU: tiny shapes, Triton's kernels in their interpreter

Needs torch, NumPy, pluggy, psutil and pytest with hypothesis, and nothing of Jackfield installed: it imports from the folders
of this repository. README.md says what is measured, and how to read it. Exit code 1: something failed or differs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATHS = [str(ROOT), str(ROOT / "core"), *sorted(map(str, ROOT.glob("plugins/*/*")))]
sys.path[:0] = [path for path in PATHS if path not in sys.path]

import torch  # noqa: E402
from benchmarks.gpu.plan import REFERENCE, Plan, Section, make_plan  # noqa: E402
from benchmarks.gpu.providers import describe  # noqa: E402
from benchmarks.gpu.table import table  # noqa: E402
from benchmarks.gpu.verdict import problems, unproven  # noqa: E402

SCHEMA_VERSION = 1
SECONDS = 450.0
"""Of everything. A machine that is lent for some minutes has to get its results out."""

START = 10.0
"""Seconds that a process may take before its first section begins, and to end."""


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="tiny shapes on a CPU, to see that it runs to its end")
    parser.add_argument("--out", type=Path, help="the JSON document, written anew after each section")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"end after so many (default: {SECONDS:g})")
    parser.add_argument("--only", default="", help="only sections whose title holds this text")
    return parser.parse_args(argv)


class Run:
    """Starts sections and gathers what they find."""

    def __init__(self, device: str, plan: Plan, *, tiny: bool, seconds: float, out: Path | None) -> None:
        self._device, self._tiny, self._out = device, tiny, out
        self._began = time.monotonic()
        self._deadline = self._began + seconds
        self._titles = [section.title for section in plan.sections]
        self.document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "tiny": tiny,
            "reference": str(REFERENCE),
            "machine": machine(device),
            "absent": plan.absent,
            "sections": [],
        }

    def all(self, sections: Sequence[Section]) -> None:
        """First those that measure nothing, side by side, then the others one by one."""
        groups = self._groups(sections)
        together = [group for group in groups if group[0].together and not self._tiny]
        alone = [group for group in groups if group not in together]
        self._write()
        cores = len(os.sched_getaffinity(0))
        lanes = max(2, cores // 2)
        threads = {"OMP_NUM_THREADS": str(max(1, cores // lanes))}  # else each would have a thread for every core
        with ThreadPoolExecutor(lanes) as pool:
            for done in as_completed([pool.submit(self._attempted, group, threads) for group in together]):
                self._keep(done.result())
        for group in alone:
            self._keep(self._attempted(group, {}))
        self.document["seconds"] = round(time.monotonic() - self._began, 1)
        self._write()

    def _groups(self, sections: Sequence[Section]) -> list[list[Section]]:
        """What shares a process: nothing on a GPU, where a fault of one would reach the next; on a CPU what may."""
        if not self._tiny:
            return [[section] for section in sections]
        groups: dict[str, list[Section]] = {}
        for section in sections:
            groups.setdefault(json.dumps(section.environment), []).append(section)
        return list(groups.values())

    def _attempted(self, group: Sequence[Section], environment: Mapping[str, str]) -> list[dict[str, Any]]:
        """Whatever happens to one process, the others are still to come."""
        try:
            return self._started(group, environment)
        except Exception as error:
            outcome = f"its process could not be run: {type(error).__name__}: {error}"
            return [{"title": section.title, "outcome": outcome, "rows": []} for section in group]

    def _started(self, group: Sequence[Section], environment: Mapping[str, str]) -> list[dict[str, Any]]:
        """One process; what it told of each section."""
        limit = min(sum(section.seconds for section in group) + START, self._deadline - time.monotonic())
        found: dict[str, dict[str, Any]] = {
            section.title: {"title": section.title, "outcome": "no time was left", "rows": []} for section in group
        }
        if limit < 2 * START and not self._tiny:
            return list(found.values())
        jobs = [
            {
                "title": section.title,
                "job": {
                    "section": section.section,
                    "device": self._device,
                    "tiny": self._tiny,
                    "seconds": min(section.seconds, limit - START),
                    "arguments": section.arguments,
                },
            }
            for section in group
        ]
        search = [*PATHS, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        with tempfile.TemporaryDirectory() as name:
            file, answers, words = (Path(name) / one for one in ("jobs.json", "answers", "words"))
            file.write_text(json.dumps(jobs))
            with answers.open("w") as out, words.open("w") as err:
                child = subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.gpu.child", str(file)],
                    stdout=out,
                    stderr=err,
                    cwd=ROOT,
                    env={**environment, **os.environ, "PYTHONPATH": os.pathsep.join(search), **group[0].environment},
                    start_new_session=True,
                )
                code: int | None = None
                try:
                    code = child.wait(limit)
                except subprocess.TimeoutExpired:
                    pass  # code None says so
                finally:
                    # With all that it has started: a compiler that goes on would be measured beside the next section.
                    with suppress(ProcessLookupError):
                        os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
            last = words.read_text(errors="replace")[-2000:]
            for row in told(answers.read_text(errors="replace")):
                one = found[row.pop("title")]
                if "ended" in row:
                    one |= {"outcome": row["ended"], "seconds": row["seconds"]}
                else:
                    one["rows"].append(row)
        for one in found.values():
            if "seconds" not in one:  # it did not come to its end
                ended = "stopped: its time was over" if code is None else f"its process ended with code {code}"
                one |= {"outcome": ended, "words": last}
        return list(found.values())

    def _keep(self, sections: Sequence[dict[str, Any]]) -> None:
        for section in sections:
            print(f"{section['title']}: {section['outcome']}", file=sys.stderr, flush=True)
        self.document["sections"] += sections
        self.document["sections"].sort(key=lambda section: self._titles.index(section["title"]))
        self.document |= {"problems": problems(self.document), "unproven": unproven(self.document)}
        self._write()

    def _write(self) -> None:
        """Whole or not at all: who ends this run early has what it found."""
        if self._out is not None:
            part = self._out.with_name(self._out.name + ".part")
            part.write_text(json.dumps(self.document, indent=1) + "\n")
            part.replace(self._out)


def told(text: str) -> Iterator[dict[str, Any]]:
    """The rows of a child's answer. The last may be cut off, and what is no row was written there by somebody else."""
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and "title" in row:
            yield row


def machine(device: str) -> dict[str, Any]:
    found = describe(device)
    versions = {}
    for name in ("torch", "triton", "numpy", "flashinfer-python"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return {
        "device": found.name,
        "capability": found.capability,
        "memory": found.total_memory,
        "cores": found.cores,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "versions": versions,
    }


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    if not args.tiny and not torch.cuda.is_available():
        print("torch sees no CUDA device here; --tiny runs the same on a CPU", file=sys.stderr)
        return 2
    device = "cpu" if args.tiny else "cuda"
    plan = make_plan(device, tiny=args.tiny)
    sections = [section for section in plan.sections if args.only in section.title]
    if not sections:
        print(
            f"no section's title holds {args.only!r}:",
            *(one.title for one in plan.sections),
            sep="\n  ",
            file=sys.stderr,
        )
        return 2
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
    run = Run(device, plan, tiny=args.tiny, seconds=args.seconds, out=args.out)
    run.all(sections)
    print(table(run.document))
    return 1 if run.document.get("problems") else 0


if __name__ == "__main__":
    sys.exit(main())
