"""SHA-256 digests of files that are remembered, so that a warm start need not read hundreds of megabytes to know what they hold.

A digest is remembered by path, device, inode, size and both times of change, the one that only the system sets among them. A
file that was changed just now is not remembered: another change within the clock's grain would go unseen. Knows no format.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

MEMORY = "digests.json"
MOST_REMEMBERED = 512
JUST_NOW_NS = 2_000_000_000


def file_digest(path: Path, directory: Path) -> str:
    """SHA-256 (hex) of a file. `directory` holds the memory, where it exists and can be written. Raises OSError if the file
    cannot be read."""
    place, name = directory / MEMORY, str(path.resolve())
    memory = _read(place)
    now = _identity(name)
    known = memory.pop(name, None)
    if isinstance(known, list) and known[:-1] == now:
        return str(known[-1])
    with open(name, "rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if _identity(name) == now and time.time_ns() - max(now[-2:]) > JUST_NOW_NS:
        memory[name] = [*now, digest]  # the newest stand last
        with contextlib.suppress(OSError):  # then it is read again the next time
            _write(place, dict(list(memory.items())[-MOST_REMEMBERED:]))
    return digest


def _identity(path: str) -> list[int]:
    told = os.stat(path)
    return [told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns]


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
        try:
            json.dump(memory, file)
            file.flush()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
