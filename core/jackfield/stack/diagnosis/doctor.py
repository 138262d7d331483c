"""What is wrong, or may become so, with the installed plugins: findings with a severity and a remedy.

Imports no plugin: each is examined in a child process of its own, one after the other so that times mean something, and a
child that hangs is killed.
"""

from __future__ import annotations

import enum
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from jackfield.config.errors import ConfigurationError, either
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.child import ChildFailure, call_in_child
from jackfield.stack.discovery.catalogue import PluginRow, Status
from jackfield.stack.selection.checks import manifest_of
from jackfield.stack.selection.choice import as_selected

LIMIT = 180.0
"""Seconds after which an examination is taken for hung. Far above what the slowest import takes, on a busy machine too."""

SLOW = 30
"""Times a bare interpreter's start, torch not counted, from which an import's time is worth a word."""

SHARED = ("main", "detokenizer")
"""Process roles that compute nothing: what is loaded there may not bring torch along."""


class Severity(enum.Enum):
    """ERROR: it cannot be used, or harms others. WARNING: it works, and its author should know. NOTE: good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """code: one word a sort, for programs; remedy: what to do, "" where there is nothing to do."""

    severity: Severity
    code: str
    text: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Examined:
    """One row with its findings. measured: what the child told, {} if the plugin was not imported.

    measured   {import_seconds, import_ratio (to a bare interpreter's start), rss_bytes, torch, torch_seconds,
               torch_rss_bytes, cuda}
    """

    row: PluginRow
    findings: tuple[Finding, ...]
    measured: dict[str, Any] = field(default_factory=dict)
    hooks: tuple[dict[str, Any], ...] = ()
    option_fields: tuple[dict[str, Any], ...] = ()
    parameter_fields: tuple[dict[str, Any], ...] = ()

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)


def bare_interpreter_seconds(rounds: int = 5) -> float:
    """Median wall time of starting and ending an interpreter that does nothing."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def examine_rows(rows: Iterable[PluginRow], *, limit: float = LIMIT, bare: float | None = None) -> Iterator[Examined]:
    """One after the other, each as soon as it is known."""
    bare = bare_interpreter_seconds() if bare is None else bare
    for row in rows:
        yield examine_row(row, limit=limit, bare=bare)


def examine_row(row: PluginRow, *, limit: float, bare: float) -> Examined:
    """bare: seconds of a bare interpreter's start."""
    if row.status is not Status.OK:
        return Examined(row=row, findings=(_of_status(row),))
    order = {"plugin": msgspec.to_builtins(as_selected(row, "it is examined"))}
    try:
        told = call_in_child("jackfield.stack.diagnosis.examination", order, fresh=True, limit=limit)
    except (ChildFailure, ConfigurationError) as error:
        run = f"-c 'import {row.module}'" if row.path is None else shlex.quote(str(row.path))
        remedy = f"run it by hand: python -X faulthandler {run}"
        return Examined(row=row, findings=(_error("examination", f"its examination failed: {error}", remedy),))
    torch = any(step["torch"] for step in told["steps"].values())
    seconds = sum(step["seconds"] for step in told["steps"].values())
    own = seconds - told["torch_seconds"]
    measured = {
        "import_seconds": own,
        "import_ratio": own / bare,
        "rss_bytes": told["rss"] - told["torch_rss"],
        "torch": torch,
        "torch_seconds": told["torch_seconds"],
        "torch_rss_bytes": told["torch_rss"],
        "cuda": told["cuda"],
    }
    models = told["models"]
    return Examined(
        row=row,
        findings=tuple(_findings(row, told, measured["import_ratio"])),
        measured=measured,
        hooks=tuple(told["hooks"]),
        option_fields=tuple(models.get("options", {}).get("fields", ())),
        parameter_fields=tuple(models.get("parameters", {}).get("fields", ())),
    )


def _of_status(row: PluginRow) -> Finding:
    reinstall = f"reinstall or upgrade {row.distribution}, or uninstall it; if it is yours, mend what is named"
    remedies = {
        Status.BROKEN: reinstall if row.path is None else f"mend {row.path}",
        Status.CONFLICT: "uninstall one of the distributions"
        if row.path is None
        else "give the file's plugin another name",
        Status.INCOMPATIBLE: "upgrade the older of the two",
        Status.UNKNOWN_KIND: f"upgrade jackfield if {row.distribution} was made for a later one",
    }
    severity = Severity.WARNING if row.status is Status.UNKNOWN_KIND else Severity.ERROR
    code = row.status.value.replace(" ", "-")
    return Finding(severity=severity, code=code, text=row.problem, remedy=remedies[row.status])


def _findings(row: PluginRow, told: dict[str, Any], ratio: float) -> Iterator[Finding]:
    manifest = manifest_of(row)
    yield from _import_findings(row, told)
    if told["cuda"]:
        yield _error("cuda", "its import initialises CUDA", "ask for the device in the hook, not at import")
    for code, text in told["changes"]:
        yield _change(code, text)
    for member in told["patches"]:
        text = f"its code stands in {member}"
        yield _error("patch", text, "implement a hook instead; if none fits, open an issue")
    for problem in told["problems"]:
        yield _error("contract", problem, "mend the hook; the hook reference has an example")
    for deprecation in told["deprecations"]:
        yield Finding(
            severity=Severity.WARNING, code="deprecation", text=deprecation, remedy="docs/versioning.md has the window"
        )
    for role, model in told["models"].items():
        if model["error"]:
            yield _error(role, model["error"], f"name a pydantic model in the manifest's key {role!r}")
        if model["defaults"]:
            text = f"the defaults of {getattr(manifest, role)} are not values that it takes: {model['defaults']}"
            yield _error(role, text, "give defaults of the fields' own types")
    for problem in (told["probe"] or {}).get("problems", ()):
        if problem.startswith("its probe"):
            yield _error("probe", problem, "a probe takes (need, device) and returns a list of Problem")
        else:
            need = told["probe"]["need"]
            text = f"its probe says{need and f' of {need}'}: {problem}"
            remedy = f"until that is mended no {'such ' if need else ''}run chooses it"
            yield Finding(severity=Severity.NOTE, code="probe", text=text, remedy=remedy)
    if told["no_device"]:
        text = f"it runs on {either(manifest.devices)}, which is not here: {told['no_device']}"
        yield Finding(severity=Severity.NOTE, code="device", text=text, remedy="no run chooses it on this machine")
    if ratio > SLOW:
        text = f"its import takes {ratio:.0f} times what a bare interpreter takes to start"
        yield Finding(severity=Severity.NOTE, code="slow", text=text, remedy="import what is large inside the hook")


def _import_findings(row: PluginRow, told: dict[str, Any]) -> Iterator[Finding]:
    """What could not be imported, and torch where it may not be. One finding a cause: later steps repeat it."""
    steps: dict[str, Any] = told["steps"]
    roles = manifest_of(row).processes or KINDS[row.kind].processes
    seen = False
    for step, result in steps.items():
        what = f"its module {row.module}" if step == "module" else f"the module of its {step}"
        if result["error"]:
            remedy = f"reinstall {row.distribution}" if row.path is None else f"mend {row.path}"
            yield _error("import", f"{what} cannot be imported: {result['error']}", remedy)
        if not result["torch"] or seen:
            continue
        seen = True
        if step != "module":
            where = "it is imported where nothing is computed"
            remedy = f"put the {step} into a module that imports no torch"
            yield _error("torch", f"{what} imports torch, and {where}", remedy)
        elif row.kind == "model" or set(roles) & set(SHARED):
            where = " and ".join(role for role in SHARED if role in roles) or "main"
            yield _error(
                "torch",
                f"{what} imports torch, and it is loaded in the process {where}, which computes nothing",
                "import torch inside the functions that need it",
            )
    heavy = sorted({name for result in steps.values() for name in result["heavy"]})
    if heavy and set(roles) & set(SHARED):
        text = f"its import brings {' and '.join(heavy)} along, seconds and memory in every process"
        yield Finding(severity=Severity.WARNING, code="heavy", text=text, remedy="import it where it is needed")


def _change(code: str, text: str) -> Finding:
    full = f"while it was imported, {text}"
    if code == "patch":
        return _error(code, full, "implement a hook instead; if none fits, open an issue")
    if code == "state:signal handlers":
        return _error("signals", full, "leave signals to the program; they end it in order")
    remedies = {
        "thread": "start threads in the hook, and end them in the object's close",
        "file": "open files in the hook, and close them in the object's close",
    }
    remedy = remedies.get(code, "change nothing that the whole process shares")
    return Finding(severity=Severity.WARNING, code=code.partition(":")[0], text=full, remedy=remedy)


def _error(code: str, text: str, remedy: str) -> Finding:
    return Finding(severity=Severity.ERROR, code=code, text=text, remedy=remedy)
