"""Renews docs/compatibility.json: every plugin's conformance report, and the runs of whole stacks of tests/e2e/test_sameness.py.

--keep-runs: only the conformance reports, which takes a minute.
docs/generate.py makes docs/reference/compatibility.md of it; tests/docs/test_compatibility.py says when it is out of date.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from jackfield.stack.discovery.scan import discover
from jackfield.stack.selection.own import OWN_DISTRIBUTIONS

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "compatibility.json"
RUNS = "tests/e2e/test_sameness.py"
SCHEMA_VERSION = 1
OPTIONS = ("kv_tier.disk.path={tmp}/tier", "observer.jsonl.directory={tmp}/log")
"""Those that have to be given. {tmp}: a new folder for each check."""


def conformance(folder: Path) -> dict[str, Any]:
    """The report of all plugins of the repository."""
    file = folder / "conformance.json"
    names = [f"{row.kind}.{row.name}" for row in discover() if row.distribution in OWN_DISTRIBUTIONS]
    options = [text for option in OPTIONS for text in ("--option", option)]
    subprocess.run(
        [sys.executable, "-m", "jackfield", "conformance", *names, *options, "--json", str(file)], check=False
    )
    report: dict[str, Any] = json.loads(file.read_text())
    return report


def plugin_rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    """One for each plugin of the repository, without what differs from run to run."""
    kept = ("kind", "name", "distribution", "version", "contract", "core_contract", "outcome")
    rows = []
    for plugin in report["plugins"]:
        checks: dict[str, dict[str, int]] = {}
        for check in plugin["checks"]:
            counts = checks.setdefault(check["check"], {})
            counts[check["outcome"]] = counts.get(check["outcome"], 0) + 1
        rows.append({key: plugin[key] for key in kept} | {"checks": checks})
    return sorted(rows, key=lambda row: (row["kind"], row["name"]))


def runs(folder: Path) -> list[dict[str, Any]]:
    """The stacks that were run, each with whether its answers were the reference's."""
    file = folder / "runs.xml"
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", RUNS, "--junitxml", str(file), "-o", "junit_family=xunit1"],
        cwd=ROOT,
        check=False,
    )
    found = []
    for case in ET.parse(file).getroot().iter("testcase"):
        for told in case.iter("property"):
            if told.get("name") == "stack":
                same = case.find("failure") is None and case.find("error") is None
                found.append({**json.loads(told.attrib["value"]), "same": same})
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = conformance(folder)
        kept = json.loads(FILE.read_text())["runs"] if "--keep-runs" in sys.argv else None
        document = {"plugins": plugin_rows(report), "runs": kept or runs(folder)}
    # One line for each plugin and run, so that a difference can be read.
    parts = [f'"schema_version": {SCHEMA_VERSION}']
    for key in ("plugins", "runs"):
        rows = ",\n".join(f"    {json.dumps(row)}" for row in document[key])
        parts.append(f'"{key}": [\n{rows}\n  ]')
    FILE.write_text("{\n  " + ",\n  ".join(parts) + "\n}\n")
    bad = [
        f"{row['kind']}.{row['name']}: {row['outcome']}" for row in document["plugins"] if row["outcome"] != "passed"
    ]
    bad += [f"a run that differs: {run}" for run in document["runs"] if not run["same"]]
    print("\n".join(bad), file=sys.stderr)
    return 1 if bad or not document["runs"] else 0


if __name__ == "__main__":
    sys.exit(main())
