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

from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.discovery.catalogue import PluginRow
from jackfield.stack.discovery.interpreter import INTERPRETED
from jackfield.stack.discovery.manifest import ManifestRow
from jackfield.stack.discovery.scan import discover
from jackfield.stack.selection.own import OWN_DISTRIBUTIONS

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "compatibility.json"
RUNS = "tests/e2e/test_sameness.py"
SCHEMA_VERSION = 1
OPTIONS = ("kv_tier.disk.path={tmp}/tier", "observer.jsonl.directory={tmp}/log")
"""Those that have to be given. {tmp}: a new folder for each check."""


def conformance(folder: Path) -> list[dict[str, Any]]:
    """The reports of all plugins of the repository: on this CPU, or with kernels of another device in their interpreter, or,
    where there is none, what their manifest says and that nothing was run."""
    reports: list[dict[str, Any]] = []
    by_device: dict[str, list[PluginRow]] = {}
    for row in discover():
        if row.distribution in OWN_DISTRIBUTIONS and row.manifest is not None:
            by_device.setdefault(shown_on(row.manifest), []).append(row)
    for device, rows in by_device.items():
        if device in ("cpu", INTERPRETED):
            reports += tested(device, [f"{row.kind}.{row.name}" for row in rows], folder)
        else:
            reports += [not_run(device, row) for row in rows]
    return reports


def shown_on(manifest: ManifestRow) -> str:
    """The device on which a machine without accelerators tests a plugin, or the one that it lacks."""
    if not manifest.devices or "cpu" in manifest.devices:
        return "cpu"
    return INTERPRETED if manifest.interpreter is not None else manifest.devices[0]


def tested(device: str, names: list[str], folder: Path) -> list[dict[str, Any]]:
    file = folder / f"{device}.json"
    options = [text for option in OPTIONS for text in ("--option", option) if option.rsplit(".", 1)[0] in names]
    given = [*names, *options, "--device", device, "--json", str(file)]
    subprocess.run([sys.executable, "-m", "jackfield", "conformance", *given], check=False)
    found: list[dict[str, Any]] = json.loads(file.read_text())["plugins"]
    return found


def not_run(device: str, row: PluginRow) -> dict[str, Any]:
    assert row.manifest is not None
    return {
        "kind": row.kind,
        "name": row.name,
        "distribution": row.distribution,
        "version": row.version,
        "contract": dict(row.manifest.contract),
        "core_contract": KINDS[row.kind].contract_version,
        "device": device,
        "outcome": "not here",
        "checks": [],
    }


def plugin_rows(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One for each plugin of the repository, without what differs from run to run."""
    kept = ("kind", "name", "distribution", "version", "contract", "core_contract", "device", "outcome")
    rows = []
    for plugin in reports:
        checks: dict[str, dict[str, int]] = {}
        for check in plugin["checks"]:
            counts = checks.setdefault(check["check"], {})
            counts[check["outcome"]] = counts.get(check["outcome"], 0) + 1
        unshown = {key: plugin[key] for key in ("dtypes_not_here",) if plugin.get(key)}
        rows.append({key: plugin[key] for key in kept} | unshown | {"checks": checks})
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
        reports = conformance(folder)
        kept = json.loads(FILE.read_text())["runs"] if "--keep-runs" in sys.argv else None
        document = {"plugins": plugin_rows(reports), "runs": kept or runs(folder)}
    # One line for each plugin and run, so that a difference can be read.
    parts = [f'"schema_version": {SCHEMA_VERSION}']
    for key in ("plugins", "runs"):
        rows = ",\n".join(f"    {json.dumps(row)}" for row in document[key])
        parts.append(f'"{key}": [\n{rows}\n  ]')
    FILE.write_text("{\n  " + ",\n  ".join(parts) + "\n}\n")
    bad = [
        f"{row['kind']}.{row['name']}: {row['outcome']}"
        for row in document["plugins"]
        if row["outcome"] != "passed" and (row["outcome"], row["checks"]) != ("not here", {})
    ]
    bad += [f"a run that differs: {run}" for run in document["runs"] if not run["same"]]
    print("\n".join(bad), file=sys.stderr)
    return 1 if bad or not document["runs"] else 0


if __name__ == "__main__":
    sys.exit(main())
