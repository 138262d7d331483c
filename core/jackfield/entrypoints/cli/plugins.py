"""`jackfield plugins list` and `plugins show`: what is installed, healthy or not. Imports no plugin."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.entrypoints.cli.output import print_json, print_table
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.discovery import discover
from jackfield.stack.inspection import describe_options_in_child, describe_parameters_in_child
from jackfield.stack.report import row_report


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("plugins", help="show which plugins are installed")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="every plugin that is installed, and what is wrong with the broken ones")
    showing = actions.add_parser("show", help="all that is known of one plugin")
    showing.add_argument("plugin", metavar="KIND.NAME", help="for example attention.torch")
    for action in (listing, showing):
        action.add_argument("--json", action="store_true", help="write JSON")
        action.add_argument("--debug", action="store_true", help="show the traceback of an error")


def run(namespace: argparse.Namespace) -> int:
    catalogue = discover()
    if namespace.action == "list":
        _list(catalogue, as_json=namespace.json)
    else:
        _show(_wanted(catalogue, namespace.plugin), as_json=namespace.json)
    return 0


def _list(catalogue: Catalogue, *, as_json: bool) -> None:
    if as_json:
        print_json([row_report(row) for row in catalogue])
        return
    print_table(
        ("KIND", "NAME", "STATUS", "DISTRIBUTION", "SUMMARY OR PROBLEM"),
        [
            (row.kind or "-", row.name or "-", row.status.value, row.origin, row.problem or row.summary)
            for row in catalogue
        ],
    )


def _wanted(catalogue: Catalogue, text: str) -> tuple[PluginRow, ...]:
    kind, dot, name = text.partition(".")
    kind = kind.replace("-", "_")
    if not dot or not name:
        near = [f"{row.kind}.{row.name}" for row in catalogue if text in (row.kind, row.name)]
        raise ConfigurationError(
            f"plugins show: {text!r} is not of the form KIND.NAME, such as attention.torch"
            f"{'; there is ' + ', '.join(near) if near else ''}"
        )
    if kind not in KINDS and not catalogue.rows(kind):
        raise ConfigurationError(f"plugins show: there is no kind {kind!r}{did_you_mean(kind, KINDS, noun='kinds')}")
    rows = catalogue.find(kind, name)
    if not rows:
        raise ConfigurationError(
            f"plugins show: no {kind} plugin {name!r} is installed"
            f"{did_you_mean(name, catalogue.names(kind), noun='installed')}"
        )
    return rows


def _show(rows: tuple[PluginRow, ...], *, as_json: bool) -> None:
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
        "location": str(row.location or ""),
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
