"""A fresh virtual environment as a stranger has it: wheels of Jackfield and of the packages here, nothing editable.

Third-party dependencies (torch and the like) are not installed again: the environment sees those of this one by links, except
everything of Jackfield's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
STRANGERS = {path.parent.name: path.parent for path in sorted(HERE.glob("*/pyproject.toml"))}


@dataclass(frozen=True)
class Environment:
    """One virtual environment."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def site(self) -> Path:
        (site,) = self.folder.glob("lib/python*/site-packages")
        return site

    def variables(self, **more: str) -> dict[str, str]:
        """The environment of a child: ours, without what would let this checkout shine through."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JACKFIELD_"))}
        return kept | {"OMP_NUM_THREADS": "1"} | more

    def run(self, *command: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """python with these arguments; the caller judges the exit code."""
        return subprocess.run(
            [self.python, *command],
            cwd=cwd,
            env=self.variables(**variables),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )


def build_wheel(project: Path, out: Path) -> Path:
    """The wheel of one project, in `out`. By hatchling itself, as pip would ask it to, without a process for each."""
    from hatchling.builders.wheel import WheelBuilder

    out.mkdir(parents=True, exist_ok=True)
    (wheel,) = WheelBuilder(str(project)).build(directory=str(out), versions=["standard"])
    return Path(wheel)


def make_environment(folder: Path, wheels: Iterable[Path]) -> Environment:
    """A new environment with exactly these wheels, and our own third-party packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    environment = Environment(folder)
    install = ["install", "--quiet", "--no-deps", "--no-index", *(str(wheel) for wheel in wheels)]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", environment.python, *install],
        check=True,
        capture_output=True,
        text=True,
    )
    links = folder / "third-party"
    links.mkdir()
    for installed in {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}:
        for path in installed.iterdir():
            ours = "jackfield" in path.name or path.name.startswith("__editable__")
            if not ours and path.suffix != ".pth" and path.name != "__pycache__":
                (links / path.name).symlink_to(path)
    (environment.site / "third-party.pth").write_text(f"{links}\n")
    return environment
