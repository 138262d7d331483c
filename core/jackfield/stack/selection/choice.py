"""The one rule by which a plugin of a kind is chosen: the named one or none, else the best usable one of those we trust.

Knows nothing of devices or models: what makes a candidate unusable is the judge's business. Every candidate that is not
chosen gets its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.resolved import Rejected, SelectedPlugin
from jackfield.stack.selection.access import Access
from jackfield.stack.selection.checks import manifest_of

Judge = Callable[[PluginRow], Sequence[str]]
"""Reasons why a healthy plugin cannot serve this run; none: it can."""


@dataclass(frozen=True)
class Choice:
    """The chosen row and why."""

    row: PluginRow
    reason: str


class Selector:
    """Chooses kind by kind and collects the rejections. One for one resolution.

    access      what it may choose when nothing is named, and what must not serve
    provenance  ServerArgs field -> where its value came from, for the messages
    """

    def __init__(
        self, catalogue: Catalogue, access: Access | None = None, provenance: Mapping[str, str] | None = None
    ) -> None:
        self._access = access or Access()
        self._catalogue = self._access.settled(catalogue)
        self._provenance = provenance or {}
        self.rejected: list[Rejected] = []

    def source(self, field: str) -> str:
        """How a message names where a field's value came from."""
        return source_text(field, self._provenance)

    def named(self, kind: str, name: str, field: str, judge: Judge) -> Choice:
        """The named plugin. Raises ConfigurationError if it is unknown, broken, in conflict or unusable here."""
        rows = self._catalogue.find(kind, name)
        source = self.source(field)
        if not rows:
            raise ConfigurationError(
                f"{source}: no {kind} plugin {name!r} is installed"
                f"{did_you_mean(name, self._catalogue.names(kind), noun='installed')}"
            )
        row = next((row for row in rows if self._denial(row) is None), rows[0])
        denial = self._denial(row)
        if denial is not None:
            raise ConfigurationError(
                f"{source}: {described(row)} cannot serve: {denial}. Name another, or take that back"
            )
        if row.status is not Status.OK:
            raise ConfigurationError(f"{source}: {described(row)} cannot be used: {row.problem}")
        problems = judge(row)
        if problems:
            raise ConfigurationError(f"{source}: {described(row)} cannot serve here: {'; '.join(problems)}")
        self._reject(
            kind, {(row.distribution, row.name)}, lambda other: self._why_not(other, judge, row.name, trust=False)
        )
        return Choice(row, f"named by {source}")

    def best(self, kind: str, judge: Judge) -> Choice:
        """The usable plugin of highest priority among our own and the allowed. Raises ConfigurationError if there is none.

        A negative priority means: only when named. A tie goes to the first name, and the reason says so.
        """
        usable = [row for row in self._catalogue.rows(kind) if self._candidate(row, judge) is None]
        if not usable:
            raise ConfigurationError(self._none_usable(kind, judge))
        usable.sort(key=lambda row: (-priority(row), row.name))
        row = usable[0]
        if row.status is Status.CONFLICT:
            raise ConfigurationError(
                f"the {kind} plugin {row.name!r} would be chosen, but {row.problem}, "
                f"or name another with {KINDS[kind].flag}"
            )
        flag = KINDS[kind].flag
        ties = [other.name for other in usable[1:] if priority(other) == priority(row)]
        if ties:
            reason = f"first by name of a tie at priority {priority(row)} with {', '.join(ties)}; {flag} decides it"
        elif len(usable) > 1:
            reason = f"highest priority ({priority(row)}) of {', '.join(sorted(other.name for other in usable))}"
        else:
            reason = "the only usable one"
        self._reject(
            kind, {(row.distribution, row.name)}, lambda other: self._why_not(other, judge, row.name, trust=True)
        )
        return Choice(row, reason)

    def best_if_any(self, kind: str, judge: Judge) -> Choice | None:
        """As `best`, for a kind that a run can do without: None if no plugin is usable, each with its reason."""
        if any(self._candidate(row, judge) is None for row in self._catalogue.rows(kind)):
            return self.best(kind, judge)
        self._reject(kind, set(), lambda row: self._why_not(row, judge, "", trust=True))
        return None

    def choose(self, kind: str, name: str | None, field: str, judge: Judge) -> Choice:
        """The named one, or the best if none is named."""
        return self.best(kind, judge) if name is None else self.named(kind, name, field, judge)

    def set_aside(self, kind: str, reason: str, chosen: Iterable[str] = ()) -> None:
        """Reject every plugin of a kind, except the `chosen` names, for one reason; a broken one for its own."""
        names = set(chosen)
        for row in self._catalogue.rows(kind):
            if row.name and row.name not in names:
                why = self._denial(row) or (reason if row.status is Status.OK else row.problem)
                self.rejected.append(_rejected(row, why))

    def reject(self, row: PluginRow, reason: str) -> None:
        """This row does not serve."""
        self.rejected.append(_rejected(row, self._denial(row) or reason))

    def set_aside_what_has_no_kind(self) -> None:
        """Whatever is installed for a kind that this core does not know, or is too broken to name one."""
        self.rejected += [
            _rejected(row, row.problem) for row in self._catalogue if row.kind not in KINDS or not row.name
        ]

    def only_named(self, row: PluginRow) -> str | None:
        """Why automatic selection passes over a healthy row, or None."""
        denial = self._denial(row)
        if denial is not None:
            return denial
        flag = flag_of(row)
        if row.path is not None:
            return f"a plugin of a --plugin file serves only when it is named: {flag} {row.name}"
        if not self._access.trusts(row):
            return (
                f"{row.distribution} is not one of our distributions: allow it with --plugin-allow {row.distribution} "
                f"or name the plugin with {flag} {row.name}"
            )
        if priority(row) < 0:
            return f"it is used only when named: {flag} {row.name}"
        return None

    def _denial(self, row: PluginRow) -> str | None:
        entry = self._access.denial(row)
        return None if entry is None else f"{self.source('plugin_deny')} {entry} denies it"

    def _candidate(self, row: PluginRow, judge: Judge) -> str | None:
        """Why this row takes no part in automatic selection, or None. A conflict takes part, so that it is not silent."""
        if row.manifest is None or row.status not in (Status.OK, Status.CONFLICT):
            return self._denial(row) or row.problem
        return self.only_named(row) or ("; ".join(judge(row)) or None)

    def _why_not(self, row: PluginRow, judge: Judge, chosen: str, *, trust: bool) -> str:
        if (denial := self._denial(row)) is not None:
            return denial
        if row.status is not Status.OK:
            return row.problem
        reason = "; ".join(judge(row))
        if reason:
            return reason
        if not trust:
            return f"{chosen!r} was named"
        return self.only_named(row) or f"its priority {priority(row)} does not exceed that of {chosen!r}"

    def _reject(self, kind: str, chosen: set[tuple[str, str]], why: Callable[[PluginRow], str]) -> None:
        for row in self._catalogue.rows(kind):
            if row.name and (row.distribution, row.name) not in chosen:
                self.rejected.append(_rejected(row, why(row)))

    def _none_usable(self, kind: str, judge: Judge) -> str:
        rows = [row for row in self._catalogue.rows(kind) if row.name]
        if not rows:
            return f"no {kind} plugin is installed: install one, for example a distribution jackfield-{KINDS[kind].group}-*"
        lines = "".join(f"\n  - {row.name} ({row.origin}): {self._candidate(row, judge)}" for row in rows)
        denied = any(self._denial(row) is not None for row in rows)
        end = f"\nTake a denial back, or name another with {KINDS[kind].flag}" if denied else ""
        return f"no {kind} plugin can serve here:{lines}{end}"


def source_text(field: str, provenance: Mapping[str, str]) -> str:
    """The field's flag, and where its value came from if not from there."""
    flag = "--" + field.replace("_", "-")
    origin = provenance.get(field, flag)
    return flag if origin in (flag, "default") else f"{flag} (from {origin})"


def as_selected(
    row: PluginRow,
    reason: str,
    *,
    instance: str | None = None,
    options: Mapping[str, Any] | None = None,
    option_folders: Mapping[str, str] | None = None,
    option_sources: Mapping[str, str] | None = None,
    phases: tuple[str, ...] = (),
) -> SelectedPlugin:
    """A healthy row as a part of a stack."""
    return SelectedPlugin(
        kind=row.kind,
        name=row.name,
        instance=instance or row.name,
        distribution=row.distribution,
        version=row.version,
        package=row.package,
        module=row.module,
        manifest=manifest_of(row),
        reason=reason,
        options=dict(options or {}),
        option_folders=dict(option_folders or {}),
        option_sources=dict(option_sources or {}),
        phases=phases,
        path=None if row.path is None else str(row.path),
        digest=row.digest,
    )


def _rejected(row: PluginRow, reason: str) -> Rejected:
    return Rejected(kind=row.kind, name=row.name, reason=reason, origin=row.origin)


def priority(row: PluginRow) -> int:
    """The manifest's priority; the lowest there is without a manifest."""
    return row.manifest.priority if row.manifest is not None else -(2**31)


def flag_of(row: PluginRow) -> str:
    """The flag that names the row's plugin."""
    return KINDS[row.kind].flag_of(() if row.manifest is None else row.manifest.features)


def described(row: PluginRow) -> str:
    """How messages name a row."""
    return f"{row.kind} plugin {row.name!r} ({row.origin})"
