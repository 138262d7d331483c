"""Discovery: one scan of `*.dist-info/entry_points.txt` and the manifests beside the plugins. Imports no plugin.

Each file is read under a guard of its own, so that one broken package, ours or anybody's, hides no other.
"""

from __future__ import annotations

import configparser
import importlib
import importlib.metadata
import importlib.util
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from entrypoints import BadEntryPoint, CaseSensitiveConfigParser, EntryPoint

from jackfield.config.errors import did_you_mean
from jackfield.hookspecs.kinds import ENTRY_POINT_PREFIX, KINDS
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.discovery.manifest import MANIFEST_NAME, Manifest, read_manifest
from jackfield.stack.discovery.versions import incompatibilities
from jackfield.stack.names import is_plugin_name, normalise_name

_INVALIDATING = threading.Lock()


@dataclass(frozen=True)
class _Entry:
    kind: str
    name: str
    value: str


@dataclass(frozen=True)
class _Package:
    """An import package as found, or the reason why it was not."""

    location: Path | None
    manifest: Manifest
    problem: str = ""


def discover(path: Sequence[str] | None = None, *, files: Sequence[Path] = ()) -> Catalogue:
    """Everything installed on `path` (default: `sys.path` with all its finders), plugins and problems alike; and what the
    one-file plugins `files` offer."""
    # A long-lived process (a notebook) must see what was installed after its finders last looked. Two threads at once would both
    # delete the same finder, and one of them fail.
    with _INVALIDATING:
        importlib.invalidate_caches()
    rows: list[PluginRow] = []
    for info in _dist_infos(sys.path if path is None else path):
        rows.extend(_rows_of(info, path))
    if files:
        from jackfield.stack.discovery.plugin_file import file_rows

        rows.extend(file_rows(files))
    rows.sort(key=lambda row: (row.kind, row.name, row.distribution))
    return Catalogue(tuple(_mark_conflicts(rows)))


def _dist_infos(path: Sequence[str]) -> Iterator[Path]:
    """The dist-info folders with entry points; of one distribution the first on the path, as imports have it."""
    seen: set[str] = set()
    for entry in path:
        folder = Path(entry or ".")
        try:
            found = sorted(folder.glob("*.dist-info/entry_points.txt"))
        except OSError:  # a path entry may be unreadable or a zip file; the import system passes over it too
            continue
        for file in found:
            if file.parent.name.startswith("~"):  # pip renames so what it is about to delete
                continue
            name = normalise_name(file.parent.name.removesuffix(".dist-info").partition("-")[0])
            if name not in seen:
                seen.add(name)
                yield file.parent


def _rows_of(info: Path, path: Sequence[str] | None) -> Iterator[PluginRow]:
    stem, _, version = info.name.removesuffix(".dist-info").partition("-")
    base = PluginRow(kind="", name="", distribution=normalise_name(stem), version=version)
    parser = CaseSensitiveConfigParser(delimiters=("=",), interpolation=None)
    try:
        parser.read_string((info / "entry_points.txt").read_text(encoding="utf-8"))
    except (configparser.Error, UnicodeDecodeError, OSError) as error:
        reason = " ".join(str(error).split())
        yield replace(base, status=Status.BROKEN, problem=f"its entry_points.txt cannot be read: {reason}")
        return
    entries = [
        _Entry(section.removeprefix(ENTRY_POINT_PREFIX), name, value)
        for section in parser.sections()
        if section.startswith(ENTRY_POINT_PREFIX)
        for name, value in parser.items(section)
    ]
    if not entries:
        return
    try:
        base = replace(base, version=importlib.metadata.PathDistribution(info).version or version)
    except Exception as error:  # metadata of any age and origin: whatever is wrong with it is this row's problem alone
        yield replace(base, status=Status.BROKEN, problem=f"its METADATA cannot be read: {error}")
        return
    yield from _plugins_of(base, entries, path)


def _plugins_of(base: PluginRow, entries: Sequence[_Entry], path: Sequence[str] | None) -> Iterator[PluginRow]:
    packages: dict[str, _Package] = {}
    offered: set[tuple[str, str]] = set()
    for entry in entries:
        row = replace(base, kind=entry.kind, name=normalise_name(entry.name))
        offered.add((row.kind, row.name))
        try:
            point = EntryPoint.from_string(entry.value, entry.name)
        except BadEntryPoint:
            point = None
        if point is None or point.object_name or point.extras:
            yield replace(
                row,
                status=Status.BROKEN,
                problem=f"its entry point {entry.value!r} is not the dotted name of a module",
            )
            continue
        top = point.module_name.partition(".")[0]
        if top not in packages:
            packages[top] = _find_package(top, path)
        yield _check(replace(row, module=point.module_name, package=top), packages[top])
    for top, package in packages.items():
        for parsed in package.manifest.rows:
            if (parsed.row.kind, parsed.row.name) not in offered:
                yield replace(
                    base,
                    kind=parsed.row.kind,
                    name=parsed.row.name,
                    summary=parsed.row.summary,
                    package=top,
                    status=Status.BROKEN,
                    problem=f"{top}/{MANIFEST_NAME} lists it, but the distribution has no entry point of that name in the "
                    f"group {ENTRY_POINT_PREFIX}{parsed.row.kind}",
                )


def _check(row: PluginRow, package: _Package) -> PluginRow:
    """The row with its manifest, or with all that is wrong."""
    row = replace(row, location=package.location)
    if package.problem:
        return replace(row, status=Status.BROKEN, problem=package.problem)
    matches = [p for p in package.manifest.rows if (p.row.kind, p.row.name) == (row.kind, row.name)]
    if matches:
        row = replace(row, summary=matches[0].row.summary)
    if row.kind not in KINDS:
        problem = f"this core knows no kind {row.kind!r}{did_you_mean(row.kind, KINDS)}"
        return replace(row, status=Status.UNKNOWN_KIND, problem=problem)
    problems = list(package.manifest.problems)
    if not is_plugin_name(row.name):
        problems.append(f"the entry point's name {row.name!r} is not of the form [a-z0-9]+(-[a-z0-9]+)*")
    if not matches and not package.manifest.problems:
        listed = [p.row.name for p in package.manifest.rows if p.row.kind == row.kind]
        problems.append(
            f"{row.package}/{MANIFEST_NAME} has no [[plugin]] row for {row.kind} {row.name!r}"
            f"{did_you_mean(row.name, listed)}"
        )
    if len(matches) > 1:
        problems.append(f"{row.package}/{MANIFEST_NAME} has {len(matches)} rows for {row.kind} {row.name!r}")
    for match in matches:
        problems.extend(match.problems)
    # Told first where both are so: what this core does not understand in a manifest is often what a newer one brought.
    incompatible = incompatibilities(matches[0].row) if len(matches) == 1 and matches[0].row.contract else []
    if package.location is not None and not _module_exists(row.module, package.location):
        problems.append(f"its module {row.module} does not exist")
    if incompatible:
        return replace(row, status=Status.INCOMPATIBLE, problem="; ".join([*incompatible, *problems]))
    if problems or not matches:
        return replace(row, status=Status.BROKEN, problem="; ".join(problems))
    manifest = matches[0].row
    return replace(row, manifest=manifest, layouts=package.manifest.layouts)


def _find_package(top: str, path: Sequence[str] | None) -> _Package:
    """Where `import top` would find the package; asks the finders, imports nothing."""
    try:
        spec: ModuleSpec | None
        spec = importlib.util.find_spec(top) if path is None else PathFinder.find_spec(top, list(path))
    except Exception as error:  # finders are anybody's code
        return _Package(None, Manifest(), f"its package {top} cannot be looked for: {error}")
    if spec is None:
        return _Package(None, Manifest(), f"its package {top} is not importable: reinstall the distribution")
    if spec.submodule_search_locations is None:
        return _Package(None, Manifest(), f"{top} is a single module; a plugin is a package with a {MANIFEST_NAME}")
    locations = [Path(location) for location in spec.submodule_search_locations]
    for location in locations:
        if (location / MANIFEST_NAME).is_file():
            return _Package(location, read_manifest(location / MANIFEST_NAME))
    return _Package(None, Manifest(), f"its package {top} has no {MANIFEST_NAME}")


def _module_exists(module: str, location: Path) -> bool:
    """Whether the module's file is there, walking folder by folder so that no parent package is imported."""
    search: list[str] | None = [str(location)]
    walked = module.partition(".")[0]
    for part in module.split(".")[1:]:
        if search is None:
            return False
        walked = f"{walked}.{part}"
        spec = PathFinder.find_spec(walked, search)
        if spec is None:
            return False
        search = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
    return True


def _mark_conflicts(rows: Sequence[PluginRow]) -> Iterator[PluginRow]:
    offers: dict[tuple[str, str], list[PluginRow]] = {}
    for row in rows:
        if row.name:
            offers.setdefault((row.kind, row.name), []).append(row)
    for row in rows:
        rivals = offers.get((row.kind, row.name), [row])
        if len({rival.origin for rival in rivals}) < 2:
            yield row
            continue
        both = " and ".join(rival.origin for rival in rivals)
        from_files = sum(rival.path is not None for rival in rivals)
        if not from_files:
            remedy = "uninstall one, or deny one with --plugin-deny"
        else:
            remedy = "give the file's another name" if from_files < len(rivals) else "give one another name"
        problem = f"{both} both offer {row.kind} {row.name!r}: {remedy}"
        told = "; ".join(filter(None, (problem, row.problem)))
        yield replace(row, status=Status.CONFLICT, problem=told, alone=(row.status, row.problem))
