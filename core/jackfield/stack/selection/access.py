"""Who may serve: our own distributions, what `--plugin-allow` adds to them, and what `--plugin-deny` takes away.

An entry is a distribution or "kind.name". A denial goes before everything, and is told where it matters: a plugin that is named
and denied is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from jackfield.config.errors import did_you_mean, either, nearest, refuse
from jackfield.config.names import plugin_reference
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow
from jackfield.stack.names import instance_key, normalise_name
from jackfield.stack.selection.own import OWN_DISTRIBUTIONS


class Access:
    """The two lists of one run."""

    def __init__(self, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> None:
        self._trusted = frozenset(OWN_DISTRIBUTIONS) | {plugin_reference(entry) for entry in allow}
        self._denied = tuple(plugin_reference(entry) for entry in deny)

    def trusts(self, row: PluginRow) -> bool:
        """Whether automatic selection may choose this row. One-file plugins serve only when they are named."""
        return row.path is None and self.denial(row) is None and not self._trusted.isdisjoint(_entries(row))

    def denial(self, row: PluginRow) -> str | None:
        """The entry of the deny-list that means this row, or None."""
        return next((entry for entry in self._denied if entry in _entries(row)), None)

    def settled(self, catalogue: Catalogue) -> Catalogue:
        """The catalogue with the conflicts that the deny-list decides: a row whose rivals are all denied has its name alone."""
        if not self._denied:
            return catalogue
        return Catalogue(tuple(self._settled(row, catalogue) for row in catalogue))

    def _settled(self, row: PluginRow, catalogue: Catalogue) -> PluginRow:
        if row.alone is None or self.denial(row) is not None:
            return row
        rivals = [other for other in catalogue.find(row.kind, row.name) if other.origin != row.origin]
        if any(self.denial(other) is None for other in rivals):
            return row
        status, problem = row.alone
        return replace(row, status=status, problem=problem, alone=None)


def refuse_unknown_entries(catalogue: Catalogue, lists: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Raises ConfigurationError for entries that mean nothing that is installed. lists: (name of the setting, its entries).

    A misspelt denial would deny nothing, and nobody would notice.
    """
    known = dict.fromkeys(entry for row in catalogue for entry in sorted(_entries(row)))
    problems = []
    for source, entries in lists:
        for entry in entries:
            if plugin_reference(entry) not in known:
                own = sorted(name for name in known if name.partition(".")[2] == entry)
                files = sorted(instance_key(row.kind, row.name) for row in catalogue if _is_file(row, entry))
                if own or files:
                    problems.append(
                        f"{source}: {entry!r} is no distribution; one plugin is written {either(own or files)}"
                    )
                    continue
                what = "plugin" if "." in entry else "distribution with plugins"
                # The same form first; an entry with a misspelt kind reads as a distribution.
                alike = [name for name in known if ("." in name) == ("." in entry)]
                choices = alike if nearest(entry, alike) or not nearest(entry, known) else list(known)
                problems.append(
                    f"{source}: no {what} {entry!r} is installed{did_you_mean(entry, choices, noun='installed')}"
                )
    if problems:
        raise refuse(problems)


def _is_file(row: PluginRow, entry: str) -> bool:
    """Whether the entry is the file's name of a one-file plugin, in the spelling of distributions."""
    return row.path is not None and bool(row.name) and normalise_name(row.path.name) == entry


def _entries(row: PluginRow) -> frozenset[str]:
    """What may stand for a row in either list."""
    named = {instance_key(row.kind, row.name)} if row.name else set()
    return frozenset(named if row.path is not None else {row.distribution, *named})
