"""One plugin by its kind and name, without a run round it: for those who look at a plugin or test it."""

from __future__ import annotations

from typing import Any

from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.resolved import PHASES, SelectedPlugin
from jackfield.stack.selection.choice import as_selected, described


def split_key(text: str) -> tuple[str, str]:
    """ "kind.name" -> both; dashes in the kind are fine. Raises ConfigurationError."""
    kind, dot, name = text.partition(".")
    kind = kind.replace("-", "_")
    if not dot or not name:
        raise ConfigurationError(f"{text!r} is not of the form KIND.NAME, such as attention.torch")
    if kind not in KINDS:
        raise ConfigurationError(f"there is no kind {kind!r}{did_you_mean(kind, KINDS, noun='kinds')}")
    return kind, name


def find_one(catalogue: Catalogue, kind: str, name: str) -> PluginRow:
    """The healthy row of this name. Raises ConfigurationError if it is unknown, broken, incompatible or in conflict."""
    rows = catalogue.find(kind, name)
    if not rows:
        raise ConfigurationError(
            f"no {kind} plugin {name!r} is installed{did_you_mean(name, catalogue.names(kind), noun='installed')}"
        )
    if rows[0].status is not Status.OK:
        raise ConfigurationError(f"{described(rows[0])} cannot be used: {rows[0].problem}")
    return rows[0]


def select_one(catalogue: Catalogue, kind: str, name: str, options: dict[str, Any]) -> SelectedPlugin:
    """The same as a choice that loading takes. Options are not validated here."""
    row = find_one(catalogue, kind, name)
    return as_selected(row, "asked for by name", options=options, phases=_phases(row))


def _phases(row: PluginRow) -> tuple[str, ...]:
    """Every part of its kind's work that it can do."""
    if row.kind == "attention":
        return PHASES
    return tuple(part for part in KINDS[row.kind].parts if row.manifest is not None and part in row.manifest.features)
