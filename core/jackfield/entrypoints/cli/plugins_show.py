"""`jackfield plugins show`: all that is known of one plugin, from its files and from a child process that imports it."""

from __future__ import annotations

import dataclasses
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.cli.output import print_json, print_table
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.catalogue import PluginRow, Status
from jackfield.stack.inspection import describe_options_in_child, describe_parameters_in_child
from jackfield.stack.report import row_report


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
        if options:
            _print_fields("OPTION", options, f'Options, in [options."{key}"] or as --option {key}.NAME=VALUE')
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
                "required" if field["required"] else repr(field["default"]),
                field["description"],
            )
            for field in fields
        ],
        title=title,
    )


def _details(row: PluginRow) -> dict[str, Any]:
    """The row, its manifest, where it is, and its options as its own process describes them."""
    details = row_report(row) | {
        "module": row.module,
        "location": str(row.path or row.location or ""),
        "option_fields": [],
        "parameter_fields": [],
    }
    if row.kind in KINDS:
        details["flag"] = KINDS[row.kind].flag
    if row.manifest is not None:
        details = dataclasses.asdict(row.manifest) | details
        details["processes"] = list(row.manifest.processes or KINDS[row.kind].processes)
    if row.status is Status.OK:
        try:
            details["option_fields"] = describe_options_in_child(row)
            details["parameter_fields"] = describe_parameters_in_child(row)
        except ConfigurationError as error:
            # The rest of the answer is still good, and this is part of it.
            details["problem"] = str(error)
    return details


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return ", ".join(str(item) for item in value) if isinstance(value, list | tuple) else str(value)
