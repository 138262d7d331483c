"""Mapped files: what is handed out stays readable, and its memory does not grow with the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jackfield_models_loaders import mapped_file
from jackfield_models_loaders.mapped_file import MappedFile, forgetting


def resident(file: MappedFile) -> int:
    """Bytes of the mapping that are in this process's memory."""
    start = f"{np.frombuffer(file.map, dtype=np.uint8).ctypes.data:x}-"
    lines = Path("/proc/self/smaps").read_text().splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith(start)]
    rss = next(line for line in lines[at:] if line.startswith("Rss:"))
    return int(rss.split()[1]) * 1024


def test_pages_that_were_read_are_given_up_behind_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_file, "HELD_BYTES", 2 << 20)
    size, parts = 1 << 20, 16
    files = []
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(np.repeat(np.arange(parts, dtype=np.uint8), size).tobytes())
        files.append(MappedFile(tmp_path / name))
    views = [(file, size, file.view(part * size, size)) for file in files for part in range(parts)]
    sums, most = [], 0
    for view in forgetting(views):
        sums.append(int(view.sum()))
        most = max(most, sum(map(resident, files)))
    assert sums == [part * size for part in range(parts)] * 2
    assert most <= 5 << 20
    assert sum(map(resident, files)) == 0
    assert int(views[3][2][-1]) == 3, "a view that somebody kept can still be read"
