"""Writes requirements.txt and requirements-cuda.txt from the distributions that are there; with --check says whether they are
up to date.

Both have every distribution. What the kernels of plugins for CUDA need is an extra of their distribution, which the second names.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HEADERS = {
    "requirements.txt": "# The whole CPU stack, editable, in one pip command. Written by `make requirements`; do not edit.\n",
    "requirements-cuda.txt": "# The same with what the plugins for CUDA need, for a machine that has it. Written by "
    "`make requirements`; do not edit.\n",
}


def text(name: str) -> str:
    """The content of one of the files."""
    plugins = sorted(path.parent for path in ROOT.glob("plugins/*/*/pyproject.toml"))
    with_extras = name == "requirements-cuda.txt"
    lines = [f"./{plugin.relative_to(ROOT).as_posix()}{_extras(plugin) if with_extras else ''}" for plugin in plugins]
    return HEADERS[name] + "".join(f"-e {line}\n" for line in [".", *lines])


def _extras(plugin: Path) -> str:
    """ "[triton]": the extras of a distribution that has a plugin for CUDA alone; "" of any other."""
    extras = _toml(plugin / "pyproject.toml")["project"].get("optional-dependencies", {})
    rows = [row for file in plugin.glob("jackfield_*/plugin.toml") for row in _toml(file)["plugin"]]
    return f"[{','.join(sorted(extras))}]" if extras and any(row.get("devices") == ["cuda"] for row in rows) else ""


def _toml(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


def main() -> int:
    old = [name for name in HEADERS if not (ROOT / name).is_file() or (ROOT / name).read_text() != text(name)]
    if "--check" in sys.argv:
        for name in old:
            print(f"{name} is out of date: run `make requirements`", file=sys.stderr)
        return 1 if old else 0
    for name in old:
        (ROOT / name).write_text(text(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
