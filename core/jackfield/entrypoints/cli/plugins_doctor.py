"""`jackfield plugins doctor`: examines plugins in child processes and tells what is wrong with them, and what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from jackfield import __version__
from jackfield.entrypoints.cli.output import print_json, print_table
from jackfield.stack.diagnosis.doctor import Examined, Severity, bare_interpreter_seconds, examine_rows
from jackfield.stack.discovery.catalogue import PluginRow

SCHEMA_VERSION = 1

MIB = 1 << 20


def doctor(rows: Sequence[PluginRow], *, as_json: bool) -> int:
    """Returns the exit code: 1 if there is an error."""
    bare = bare_interpreter_seconds()
    examined = []
    for one in examine_rows(rows, bare=bare):
        examined.append(one)
        if sys.stderr.isatty():
            print(f"\r{len(examined)} of {len(rows)} examined", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    errors, warnings = (sum(one.count(severity) for one in examined) for severity in (Severity.ERROR, Severity.WARNING))
    if as_json:
        print_json(
            {
                "schema_version": SCHEMA_VERSION,
                "core": __version__,
                "bare_interpreter_seconds": bare,
                "errors": errors,
                "warnings": warnings,
                "plugins": [_report(one) for one in examined],
            }
        )
    else:
        _show(examined, errors, warnings)
    return 1 if errors else 0


def _report(one: Examined) -> dict[str, Any]:
    row = one.row
    return {
        "kind": row.kind,
        "name": row.name,
        "distribution": row.distribution,
        "version": row.version,
        "status": row.status.value,
        "measured": one.measured,
        "hooks": list(one.hooks),
        "findings": [
            {
                "severity": finding.severity.value,
                "code": finding.code,
                "text": finding.text,
                "remedy": finding.remedy,
            }
            for finding in one.findings
        ],
    }


def _show(examined: Sequence[Examined], errors: int, warnings: int) -> None:
    print_table(
        ("PLUGIN", "DISTRIBUTION", "IMPORT", "MEMORY", "TORCH", "CUDA", "RESULT"),
        [
            (
                f"{one.row.kind or '-'}.{one.row.name or '-'}",
                one.row.origin,
                *(_measures(one.measured) if one.measured else ("-",) * 4),
                _result(one),
            )
            for one in examined
        ],
        title="Import: in starts of a bare interpreter. Torch's own time and memory are not counted.",
    )
    findings = [cells for one in examined for cells in _finding_cells(one)]
    if findings:
        print_table(("PLUGIN", "SEVERITY", "FINDING", "REMEDY"), findings, title="Findings")
    print(f"{len(examined)} examined: {errors} errors, {warnings} warnings")


def _measures(measured: dict[str, Any]) -> tuple[str, str, str, str]:
    return (
        f"{measured['import_ratio']:.1f}",
        f"{measured['rss_bytes'] / MIB:.1f} MiB",
        "yes" if measured["torch"] else "no",
        "yes" if measured["cuda"] else "no",
    )


def _result(one: Examined) -> str:
    counts = [
        f"{count} {severity.value}{'s' if count > 1 else ''}" for severity in Severity if (count := one.count(severity))
    ]
    return ", ".join(counts) or "sound"


def _finding_cells(one: Examined) -> Iterator[tuple[str, str, str, str]]:
    for finding in one.findings:
        name = f"{one.row.kind}.{one.row.name}" if one.row.name else one.row.origin
        yield name, finding.severity.value, finding.text, finding.remedy
