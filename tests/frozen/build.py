"""Builds the wheels of a new minor version from their sources: `python tests/frozen/build.py v1_1`. Never an old one again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> int:
    target = FOLDER / sys.argv[1]
    if list(target.glob("*.whl")):
        print(f"{target} has its wheels: what is frozen is not built again", file=sys.stderr)
        return 1
    sources = sorted(str(source) for source in (target / "src").iterdir())
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(target),
    ]
    # The date of the first file that a zip can hold: so the same sources make the same bytes.
    return subprocess.run(
        [*command, *sources], env=os.environ | {"SOURCE_DATE_EPOCH": "315532800"}, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
