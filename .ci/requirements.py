"""Writes requirements.txt from the distributions that are there; with --check says whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# The whole CPU stack, editable, in one pip command. Written by `make requirements`; do not edit.\n"


def text() -> str:
    plugins = sorted(path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("plugins/*/*/pyproject.toml"))
    return HEADER + "".join(f"-e {place}\n" for place in [".", *(f"./{plugin}" for plugin in plugins)])


def main() -> int:
    file = ROOT / "requirements.txt"
    if "--check" in sys.argv:
        if file.read_text() != text():
            print("requirements.txt is out of date: run `make requirements`", file=sys.stderr)
            return 1
        return 0
    file.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
