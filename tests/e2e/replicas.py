"""Replicas of processes for the end-to-end tests: engines, processes to kill, and what must not be left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

PATIENCE = 60.0
"""Seconds until a condition that must come true counts as a failure; nothing is measured by it."""


def pids(engine: Any) -> dict[str, int]:
    """Role -> process id."""
    return dict(engine._runtime.processes)


def run_directories() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("jackfield-*-*"))


@contextmanager
def nothing_left() -> Iterator[None]:
    """No process (zombies count), thread, descriptor or run directory more than before."""
    me = psutil.Process()
    fds, directories, children = set(os.listdir("/proc/self/fd")), run_directories(), set(me.children(recursive=True))
    yield
    assert set(me.children(recursive=True)) <= children
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("jackfield")] == []
    assert [path for path in run_directories() - directories if f"-{me.pid}-" in path.name] == []
    left = [target for fd in set(os.listdir("/proc/self/fd")) - fds if (target := _target(fd)) != "closed since"]
    assert left == [], left


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        return "closed since"


def wait_gone(*gone: int) -> None:
    """Until none of these processes exists, zombies included. Reaps none: that is somebody else's duty, and what is tested."""
    deadline = time.monotonic() + PATIENCE
    while left := [pid for pid in gone if psutil.pid_exists(pid)]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.005)


class Script:
    """A Python program of its own, talked to by lines. Killed at the end of the `with`, whatever happened."""

    def __init__(self, folder: Path, code: str, *arguments: str) -> None:
        (folder / "script.py").write_text(code)
        self.process = subprocess.Popen(
            [sys.executable, str(folder / "script.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.kill()
            raise AssertionError(f"it ended: {self.process.communicate()[1]}")
        return line.strip()

    def finish(self) -> tuple[int, str, str]:
        """Close its input and wait. Exit code, the rest of stdout, stderr."""
        out, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, errors

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
