"""`jackfield plugins list|show|doctor`: what is installed, healthy or not. Imports no plugin."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jackfield.config.argument_parser import ArgumentParser
from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.entrypoints.cli.output import print_json, print_table
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow
from jackfield.stack.discovery.scan import discover
from jackfield.stack.report import row_report

_OF_ALL = frozenset({"list", "show", "--json", "--debug"})


class _WithStackArguments(ArgumentParser):
    """Learns the flags of a run when there is something on the line that may be one: building them takes longer than listing."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.prog.endswith(" list") and not _OF_ALL.issuperset(args or ()):
            from jackfield.config.flags import add_server_args

            add_server_args(self)
        return super().parse_known_args(args, namespace)


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("plugins", help="show which plugins are installed, and whether they are sound")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=_WithStackArguments)
    listing = actions.add_parser(
        "list",
        help="every plugin that is installed, and what is wrong with the broken ones",
        description="List every plugin that is installed. Installed is not active: with --active, or any flag of a run, it is "
        "told which of them that run would use.",
        conflict_handler="resolve",
    )
    listing.add_argument("--active", action="store_true", help="tell which plugins a run with these flags would use")
    showing = actions.add_parser("show", help="all that is known of one plugin")
    showing.add_argument("plugin", metavar="KIND.NAME", help="for example attention.torch")
    examining = actions.add_parser(
        "doctor",
        help="import plugins in processes of their own, and tell what is wrong",
        description="Import each installed plugin, or those that are named, in a process of its own, and tell what that took and "
        "what is wrong. Ends with 1 if anything is in error, with 0 if there are warnings at most.",
    )
    examining.add_argument("plugin", metavar="KIND.NAME", nargs="*", help="for example attention.torch; none: all")
    for action in (showing, examining):
        action.add_argument(
            "--plugin",
            dest="files",
            action="append",
            type=Path,
            default=[],
            metavar="FILE",
            help="Python file with plugins of its own; may be repeated",
        )
    for action in (listing, showing, examining):
        action.add_argument("--json", action="store_true", help="write JSON")
        action.add_argument("--debug", action="store_true", help="show the traceback of an error")


def run(namespace: argparse.Namespace) -> int:
    if namespace.action == "list":
        _list(namespace)
        return 0
    catalogue = discover(files=namespace.files)
    if namespace.action == "show":
        from jackfield.entrypoints.cli.plugins_show import show

        show(wanted(catalogue, namespace.plugin, "show"), as_json=namespace.json)
        return 0
    from jackfield.entrypoints.cli.plugins_doctor import doctor

    rows = [row for text in dict.fromkeys(namespace.plugin) for row in wanted(catalogue, text, "doctor")]
    return doctor(rows if namespace.plugin else list(catalogue), as_json=namespace.json)


def _list(namespace: argparse.Namespace) -> None:
    given = set(vars(namespace)) - {"command", "action", "json", "debug", "active", "plugin"}
    if namespace.active or given:
        catalogue, active = _active(namespace)
    else:  # a file that is named adds to the list; it is no run
        catalogue, active = discover(files=[Path(file) for file in getattr(namespace, "plugin", ())]), None
    rows = [_row(row, active) for row in catalogue]
    if namespace.json:
        print_json(rows)
        return
    columns = ["KIND", "NAME", "STATUS", "CONTRACT", "HOOKS", "DISTRIBUTION", "SUMMARY OR PROBLEM"]
    if active is not None:
        columns.insert(3, "ACTIVE")
    print_table(columns, [_cells(row, active is not None) for row in rows])


def _row(row: PluginRow, active: dict[tuple[str, str], list[str]] | None) -> dict[str, Any]:
    uses = None if active is None else active.get((row.kind, row.name), [])
    return row_report(row) | {"active": None if uses is None else bool(uses), "instances": uses or []}


def _cells(row: dict[str, Any], with_active: bool) -> Sequence[str]:
    cells = [
        row["kind"] or "-",
        row["name"] or "-",
        row["status"],
        row["contract"] or "-",
        ", ".join(row["hooks"]) or "-",
        row["path"] or f"{row['distribution']} {row['version']}".rstrip(),
        row["problem"] or "; ".join(row["deprecations"]) or row["summary"],
    ]
    if with_active:
        others = [name for name in row["instances"] if name != row["name"]]
        cells.insert(3, ("yes" + (f" (as {', '.join(row['instances'])})" if others else "")) if row["active"] else "no")
    return cells


def _active(namespace: argparse.Namespace) -> tuple[Catalogue, dict[tuple[str, str], list[str]]]:
    """What is there, and (kind, name) -> the instances under which a run with these flags would use it."""
    from jackfield.config.flags import parse_server_args
    from jackfield.entrypoints.cli.explain import resolution_of

    args, provenance = parse_server_args(namespace, os.environ)
    catalogue = discover(files=args.plugin)
    used: dict[tuple[str, str], list[str]] = {}
    for plugin in resolution_of(args, provenance, catalogue).resolution.stack.plugins:
        instances = used.setdefault((plugin.kind, plugin.name), [])
        if plugin.instance not in instances:
            instances.append(plugin.instance)
    return catalogue, used


def wanted(catalogue: Catalogue, text: str, action: str) -> tuple[PluginRow, ...]:
    """The rows of "KIND.NAME". Raises ConfigurationError, with the nearest names, if there are none."""
    kind, dot, name = text.partition(".")
    kind = kind.replace("-", "_")
    if not dot or not name:
        near = [f"{row.kind}.{row.name}" for row in catalogue if text in (row.kind, row.name)]
        raise ConfigurationError(
            f"plugins {action}: {text!r} is not of the form KIND.NAME, such as attention.torch"
            f"{'; there is ' + ', '.join(near) if near else ''}"
        )
    if kind not in KINDS and not catalogue.rows(kind):
        raise ConfigurationError(
            f"plugins {action}: there is no kind {kind!r}{did_you_mean(kind, KINDS, noun='kinds')}"
        )
    rows = catalogue.find(kind, name)
    if not rows:
        raise ConfigurationError(
            f"plugins {action}: no {kind} plugin {name!r} is installed"
            f"{did_you_mean(name, catalogue.names(kind), noun='installed')}"
        )
    return rows
