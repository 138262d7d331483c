"""The digest of the sources of the native library, which the library carries, so that a stale one is noticed.

The standard library alone: the build runs this file too, before there is a package to import.
"""

from __future__ import annotations

import hashlib
from pathlib import Path


def source_digest(project: Path) -> str | None:
    """Of csrc/ and build_native.py in the project's folder; None where they are not, as beside an installed wheel."""
    build = project / "build_native.py"
    if not build.exists():
        return None
    digest = hashlib.sha256()
    sources = project / "csrc"
    for file in [*sorted(sources.rglob("*.cpp")), *sorted(sources.rglob("*.h")), build]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
