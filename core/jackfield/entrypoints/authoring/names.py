"""The names of a new package: derived from the plugin's kind and name, and refused with a reason where they cannot be used."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from jackfield import hookspecs
from jackfield.config.errors import ConfigurationError, did_you_mean, refuse
from jackfield.config.names import AUTO, NONE, normalise_name
from jackfield.entrypoints.authoring.kind_words import WORDS
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.discovery.catalogue import Catalogue

LICENSES = ("Apache-2.0", "BSD-3-Clause", "MIT")

_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class NewPackage:
    """Everything that is called something.

    kind, name     as in the manifest
    distribution   what pip installs
    package        what Python imports
    stem           begins the names of classes: `LeastWork`
    directory      where the package's files go; it does not exist yet, or is empty
    author         whose copyright it is
    license        one of `LICENSES`
    """

    kind: str
    name: str
    distribution: str
    package: str
    directory: Path
    author: str
    license: str

    @property
    def stem(self) -> str:
        words = "".join(word.capitalize() for word in self.name.split("-"))
        return words if words[0].isalpha() else f"Plugin{words}"

    @property
    def class_name(self) -> str:
        """The class that the hook returns; never a name of the contract's own."""
        name = self.stem + WORDS[self.kind].word.capitalize()
        return f"My{name}" if name in hookspecs.__all__ else name


def new_package(
    kind: str,
    name: str,
    *,
    catalogue: Catalogue,
    directory: str | None = None,
    distribution: str | None = None,
    package: str | None = None,
    author: str | None = None,
    license_name: str = "MIT",
) -> NewPackage:
    """The names, checked against what is installed and what lies on disk. Raises ConfigurationError with all problems."""
    known_kind = kind.replace("-", "_").lower()
    if known_kind not in KINDS:
        by_field = [each.name for each in KINDS.values() if each.field == known_kind]
        meant = f"; did you mean {by_field[0]!r}?" if by_field else did_you_mean(known_kind, KINDS, noun="kinds")
        raise ConfigurationError(f"new: there is no kind {kind!r}{meant}")
    try:
        plugin = normalise_name(name)
    except ValueError as error:
        raise ConfigurationError(f"new: {error}") from error
    problems: list[str] = []
    if plugin == AUTO:
        problems.append(f"{AUTO!r} is the word that asks for a choice; no plugin may have this name")
    if plugin == NONE:
        problems.append(f"{NONE!r} is the word that asks for no plugin; no plugin may have this name")
    problems += [
        f"{row.origin} offers the {known_kind} {plugin!r} already: choose another name"
        for row in catalogue.find(known_kind, plugin)
    ]
    chosen = f"{plugin}-{WORDS[known_kind].word}" if distribution is None else distribution
    problems += _distribution_problems(chosen, catalogue)
    imported = re.sub(r"[-.]+", "_", chosen).lower() if package is None else package
    problems += _package_problems(imported, given=package is not None)
    where = Path(chosen if directory is None else directory)
    problems += _directory_problems(where, given=directory is not None)
    if license_name not in LICENSES:
        problems.append(f"--license: {license_name!r} is not known{did_you_mean(license_name, LICENSES)}")
    whose = f"The {chosen} authors" if author is None else author.strip()
    if not whose or not whose.isprintable():
        problems.append("--author: write one line of text")
    if problems:
        raise refuse([f"new: {problem}" for problem in problems])
    return NewPackage(
        kind=known_kind,
        name=plugin,
        distribution=chosen,
        package=imported,
        directory=where,
        author=whose,
        license=license_name,
    )


def _distribution_problems(distribution: str, catalogue: Catalogue) -> list[str]:
    if not _DISTRIBUTION.fullmatch(distribution):
        return [
            f"--distribution: {distribution!r} is not a name that pip can install: use letters, digits, dashes, dots and "
            "underscores, a letter or a digit at both ends"
        ]
    installed = {row.origin for row in catalogue if row.distribution == normalise_name(distribution)}
    return [f"the distribution {origin} is installed already: choose another --distribution" for origin in installed]


def _package_problems(package: str, *, given: bool) -> list[str]:
    remedy = "choose another --package" if given else "name one with --package"
    if not package.isidentifier() or keyword.iskeyword(package) or not package.isascii():
        return [f"--package: {package!r} cannot be imported, it is no Python name; {remedy}"]
    if package in sys.stdlib_module_names:
        return [f"--package: {package!r} is a module of Python's own; {remedy}"]
    if importlib.util.find_spec(package) is not None:
        return [f"--package: there is a package {package!r} already, which would be hidden or hide it; {remedy}"]
    return []


def _directory_problems(where: Path, *, given: bool) -> list[str]:
    remedy = "choose another --directory" if given else "name another with --directory"
    if where.is_dir():
        return [f"the directory {where} exists and is not empty; {remedy}"] if any(where.iterdir()) else []
    if where.exists():
        return [f"{where} exists and is not a directory; {remedy}"]
    return []
