"""Sections in a process of their own: `python -m benchmarks.gpu.child FILE`, where FILE holds a JSON list of {title, job}.

So a fault of one section (a kernel that reads foreign memory spoils the device for its whole process) leaves the others
whole, and what a section had found before it was stopped is not lost: each row is written when it is known.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

import torch
from benchmarks.gpu.jobs import Job, Row


def main(file: str) -> int:
    """Writes rows to stdout, one JSON object a line, each with its section's title; the last of a section says how it ended."""
    # What a library, or a compiler that it starts, prints must not get between the rows.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 is float32
    failed = [_section(one, answers) for one in json.loads(Path(file).read_text())]
    return int(any(failed))


def _section(one: dict[str, Any], answers: TextIO) -> bool:
    """Whether anything failed in it."""
    failed = []

    def tell(row: Row) -> None:
        failed.append("failed" in row)
        answers.write(json.dumps({"title": one["title"], **row}) + "\n")
        answers.flush()

    began = time.perf_counter()
    try:
        job = Job(**one["job"])
        importlib.import_module(f"benchmarks.gpu.{job.section}").run(job, tell)
    except Exception:
        tell({"failed": traceback.format_exc()})
    outcome = "failed" if any(failed) else "done"
    tell({"ended": outcome, "seconds": round(time.perf_counter() - began, 2)})
    return any(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
