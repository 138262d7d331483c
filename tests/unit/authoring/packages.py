"""Packages of every kind as `jackfield new` writes them, installed by hand: a folder on the path and a dist-info beside it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jackfield.entrypoints.authoring.kind_words import WORDS
from jackfield.entrypoints.authoring.names import NewPackage, new_package
from jackfield.entrypoints.authoring.render import write
from jackfield.hookspecs import KINDS
from jackfield.stack.discovery.catalogue import Catalogue

# A worker need not compute with torch, but its conformance suite does: it has a reference for those that do.
WITH_TORCH = tuple(kind for kind in KINDS if WORDS[kind].torch or kind == "worker")
TORCH_FREE = tuple(kind for kind in KINDS if kind not in WITH_TORCH)


@dataclass(frozen=True)
class Installed:
    """new: by kind; site: where the dist-infos lie"""

    new: dict[str, NewPackage]
    site: Path

    def path(self, kinds: Iterable[str]) -> list[str]:
        return [*(str(self.new[kind].directory) for kind in kinds), str(self.site)]

    def run(self, kinds: Iterable[str], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Python code in a child that sees these packages."""
        start = f"import sys; sys.path[:0] = {self.path(kinds)!r}\n"
        return subprocess.run(
            [sys.executable, "-c", start + code, *arguments],
            cwd=self.site,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )


def write_all(folder: Path) -> Installed:
    """One package of each kind."""
    site = folder / "site"
    site.mkdir()
    made: dict[str, NewPackage] = {}
    for kind in KINDS:
        made[kind] = new = new_package(
            kind, "my-own", catalogue=Catalogue(), directory=str(folder / kind), author='Ann "A" Author'
        )
        write(new)
        project = tomllib.loads((new.directory / "pyproject.toml").read_text())["project"]
        info = site / f"{new.distribution.replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        points = "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group, entries in project["entry-points"].items()
        )
        (info / "entry_points.txt").write_text(points)
    return Installed(made, site)
