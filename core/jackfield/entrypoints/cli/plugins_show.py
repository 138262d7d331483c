"""`jackfield plugins show`: all that is known of one plugin, from its files and from a child process that imports it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from jackfield import __version__
from jackfield.entrypoints.cli.output import as_written, print_json, print_table
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.diagnosis.doctor import LIMIT, examine_row
from jackfield.stack.digest import content_digest
from jackfield.stack.discovery.catalogue import PluginRow, Status
from jackfield.stack.report import row_report
from jackfield.stack.selection.checks import manifest_of
from jackfield.stack.selection.choice import flag_of


def show(rows: tuple[PluginRow, ...], *, as_json: bool) -> None:
    shown = [_details(row) for row in rows]
    if as_json:
        print_json(shown)
        return
    for details in shown:
        options = details.pop("option_fields")
        parameters = details.pop("parameter_fields")
        facts = {key: value for key, value in details.items() if value or value == 0}
        print_table(("FIELD", "VALUE"), [(key, _text(value)) for key, value in facts.items()])
        key = f"{details['kind']}.{details['name']}"
        if details["status"] == Status.OK.value and not details.get("options"):
            print_table(("OPTION",), [], title="Options")
        if options:
            flag = f"{KINDS[details['kind']].flag}.{details['name']}.NAME VALUE"
            _print_fields("OPTION", options, f'Options, in [options."{key}"] or as {flag}')
        if parameters:
            field = KINDS[details["kind"]].field
            _print_fields("PARAMETER", parameters, f"Parameters of a request, in {field}.{details['name']}")


def _print_fields(what: str, fields: list[dict[str, Any]], title: str) -> None:
    print_table(
        (what, "TYPE", "DEFAULT", "MEANING"),
        [
            (
                field["name"],
                field["type"],
                "required" if field["required"] else as_written(field["default"]),
                field["description"],
            )
            for field in fields
        ],
        title=title,
    )


def _details(row: PluginRow) -> dict[str, Any]:
    """The row, its manifest, its files, and what its own process tells of its hooks and options."""
    details = row_report(row) | {
        "module": row.module,
        "location": str(row.path or row.location or ""),
        "content": _content(row),
        "core": __version__,
        "hooks_implemented": [],
        "option_fields": [],
        "parameter_fields": [],
        "findings": [],
    }
    if row.kind in KINDS:
        details["flag"] = flag_of(row)
        details["contract_of_core"] = KINDS[row.kind].contract_version
    if row.manifest is not None:
        details = _plain(row) | details
        details["processes"] = list(row.manifest.processes or KINDS[row.kind].processes)
    if row.status is Status.OK:
        one = examine_row(row, limit=LIMIT, bare=math.inf)
        details["hooks_implemented"] = list(one.hooks)
        details["option_fields"] = list(one.option_fields)
        details["parameter_fields"] = list(one.parameter_fields)
        details["findings"] = [f"{finding.severity.value}: {finding.text}" for finding in one.findings]
    return details


def _content(row: PluginRow) -> str:
    if row.path is not None:
        return row.digest or ""
    return "" if row.location is None else content_digest(row.location)


def _plain(row: PluginRow) -> dict[str, Any]:
    """The manifest, except for what the row says better."""
    table = dataclasses.asdict(manifest_of(row))
    table["contracts"] = table.pop("contract")
    # What range of cores the plugin says it works with; `core` is this one's version.
    table["core_range"] = table.pop("core", "")
    return table


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        return ", ".join(
            f"{item['on'] + '.' if item['on'] else ''}{item['hook']}({', '.join(item['arguments'])})" for item in value
        )
    return ", ".join(str(item) for item in value) if isinstance(value, list | tuple) else str(value)
