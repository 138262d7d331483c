"""What a model's files hold, as SHA-256 digests that are remembered, so that a warm start need not read the files.

A digest is remembered by path, device, inode, size and time of change. A file that was changed just now is not: another
change within the clock's grain would go unseen. Knows nothing of formats.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MEMORY = "checkpoints.json"
MOST_REMEMBERED = 512
JUST_NOW_NS = 2_000_000_000


def content_digests(files: Sequence[Path], directory: Path) -> list[str]:
    """SHA-256 (hex) of each file, in their order. `directory` holds the memory. Raises OSError if a file cannot be read."""
    memory = _read(directory / MEMORY)
    found, learnt = [], False
    for file in files:
        path = str(file.resolve())
        known = memory.get(path)
        now = identity(path)
        if isinstance(known, list) and known[:-1] == now:
            found.append(str(known[-1]))
            continue
        with open(path, "rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        found.append(digest)
        if identity(path) == now and time.time_ns() - now[-1] > JUST_NOW_NS:
            memory.pop(path, None)  # so that it stands last
            memory[path] = [*now, digest]
            learnt = True
    if learnt:
        _write(directory / MEMORY, dict(list(memory.items())[-MOST_REMEMBERED:]))
    return found


def identity(path: str | Path) -> list[int]:
    """By which a file that was not touched is known. Raises OSError."""
    told = os.stat(path)
    return [told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns]


def _read(path: Path) -> dict[str, Any]:
    """Empty where there is none, or nothing that can be read: the digests are then made again."""
    try:
        memory = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return memory if isinstance(memory, dict) else {}


def _write(path: Path, memory: dict[str, Any]) -> None:
    """In one step, so that another process reads the old or the new one; of two that write at once one is forgotten."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        json.dump(memory, file)
    os.replace(file.name, path)
