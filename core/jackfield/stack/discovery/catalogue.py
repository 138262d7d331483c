"""What is installed: one row for every plugin found and for every thing that kept one from being found."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jackfield.hookspecs.kv import KVLayout
from jackfield.stack.discovery.manifest import ManifestRow
from jackfield.stack.names import normalise_name


class Status(enum.Enum):
    """OK: may be used. The others say why it may not; `PluginRow.problem` says it in full."""

    OK = "ok"
    BROKEN = "broken"
    CONFLICT = "conflict"
    INCOMPATIBLE = "incompatible"
    UNKNOWN_KIND = "unknown kind"


@dataclass(frozen=True, kw_only=True)
class PluginRow:
    """One line of `plugins list`.

    kind, name          "" where a broken file names none
    distribution        normalised; version as its metadata says, "" if it has none
    module              the entry-point value, "" if there is none
    package             its first part: the import package, whose bytes are hashed
    manifest            None if there is none to trust
    layouts             KV layouts that the distribution's manifest declares
    location            folder of the import package
    alone               of a row in conflict: the status and the problem that it has without its rivals
    path, digest        of a one-file plugin: the file and the SHA-256 of its bytes; `distribution` is the file's name then
    """

    kind: str
    name: str
    distribution: str
    version: str
    summary: str = ""
    status: Status = Status.OK
    problem: str = ""
    module: str = ""
    package: str = ""
    manifest: ManifestRow | None = None
    layouts: tuple[KVLayout, ...] = ()
    location: Path | None = None
    path: Path | None = None
    digest: str = ""
    alone: tuple[Status, str] | None = None

    @property
    def origin(self) -> str:
        """Distribution and version, or the file, as messages name it."""
        if self.path is not None:
            return str(self.path)
        return f"{self.distribution} {self.version}".rstrip()


@dataclass(frozen=True)
class Catalogue:
    """All rows, ordered by kind, name and distribution."""

    all_rows: tuple[PluginRow, ...] = ()

    def __iter__(self) -> Iterator[PluginRow]:
        return iter(self.all_rows)

    def __len__(self) -> int:
        return len(self.all_rows)

    def rows(self, kind: str) -> tuple[PluginRow, ...]:
        """Every row of one kind, usable or not."""
        return tuple(row for row in self.all_rows if row.kind == kind)

    def find(self, kind: str, name: str) -> tuple[PluginRow, ...]:
        """The rows under one name: none, one, or all sides of a conflict."""
        wanted = normalise_name(name)
        return tuple(row for row in self.all_rows if row.kind == kind and row.name == wanted)

    def names(self, kind: str) -> tuple[str, ...]:
        """Names of one kind without repeats, for suggestions."""
        return tuple(dict.fromkeys(row.name for row in self.all_rows if row.kind == kind and row.name))
