"""What a run refuses about its one-file plugins: a file that cannot be used, and one of which nothing is used.

Whoever names a file means it, so neither may pass in silence.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jackfield.config.errors import ConfigurationError, either, refuse
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.resolved import SelectedPlugin
from jackfield.stack.selection.choice import flag_of


def refuse_unusable_files(catalogue: Catalogue, source: str) -> None:
    """Raises ConfigurationError for every plugin of every file that cannot be used, chosen or not. `source`: the setting."""
    wrong = [row for row in catalogue if row.path is not None and row.status is not Status.OK]
    if wrong:
        raise refuse([f"{source} {_named(row)}: {row.problem}" for row in wrong])


def refuse_unused_files(catalogue: Catalogue, stack: Iterable[SelectedPlugin], source: str) -> None:
    """Raises ConfigurationError, with the flags to add, for a file of which the stack uses nothing.

    Not asked about files that one stack file gives to all its stacks: each may use others of them.
    """
    used = {plugin.path for plugin in stack}
    idle: dict[Path, list[PluginRow]] = {}
    for row in catalogue:
        if row.path is not None and str(row.path) not in used:
            idle.setdefault(row.path, []).append(row)
    for path, rows in idle.items():
        flags = either(f"{flag_of(row)} {row.name}" for row in rows)
        raise ConfigurationError(f"{source} {path}: the stack uses nothing of it; add {flags}, or leave the file out")


def _named(row: PluginRow) -> str:
    return f"{row.path} ({row.kind} {row.name!r})" if row.kind else str(row.path)
