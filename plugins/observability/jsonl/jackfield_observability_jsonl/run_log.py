"""The files of one process. They know lines, not hooks."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from jackfield.hookspecs import ProcessInfo

REQUESTS = "requests.jsonl"
STEPS = "steps.jsonl"
LIVES = "lives.jsonl"
FILES_OF_ROLE: Mapping[str, tuple[str, ...]] = {
    "main": (REQUESTS,),
    "scheduler": (STEPS, LIVES),
    "inline": (REQUESTS, STEPS, LIVES),
}
_CANNOT_SYNC = (errno.EINVAL, errno.EOPNOTSUPP)


def make_directory(directory: Path) -> None:
    """Make it if it is missing. Raises OSError if it is none, or cannot be made or written to."""
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(
            errno.ENOTDIR, "the option directory names something else than a directory", str(directory)
        )
    directory.mkdir(parents=True, exist_ok=True)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(
            errno.EACCES, "the option directory names one that this user may not write to", str(directory)
        )


class RunLog:
    """Appends to the files that belong to a role; what is written for another file goes nowhere."""

    def __init__(self, directory: Path, *, steps: bool) -> None:
        self.directory = directory.absolute()
        self.steps = steps
        self._files: dict[str, int] = {}

    def open(self, process: ProcessInfo) -> None:
        """Open this role's files, those that are not open yet, and say in each that the process has started.

        Raises OSError; then nothing more is open than before.
        """
        wanted = [name for name in FILES_OF_ROLE.get(process.role, ()) if self.steps or name != STEPS]
        if not wanted:
            return
        make_directory(self.directory)
        opened: dict[str, int] = {}
        try:
            for name in wanted:
                if name not in self._files:
                    # Whole lines in one write to an appending descriptor: the schedulers of several replicas share a file.
                    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                    opened[name] = os.open(self.directory / name, flags, 0o644)
        except OSError:
            for descriptor in opened.values():
                os.close(descriptor)
            raise
        self._files |= opened
        for name in wanted:
            self.write(name, [_process_line("started", process)])

    def keeps(self, name: str) -> bool:
        return name in self._files

    def write(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """One line for each row."""
        descriptor = self._files.get(name)
        if descriptor is None:
            return
        # A lone surrogate (half of an undecodable byte) becomes its JSON escape.
        text = "".join(
            json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n" for row in rows
        )
        left = memoryview(text.encode(errors="backslashreplace"))
        while left:
            left = left[os.write(descriptor, left) :]

    def write_to_all(self, row: Mapping[str, Any]) -> None:
        """One line in each file that is open."""
        for name in self._files:
            self.write(name, [row])

    def close(self, process: ProcessInfo) -> None:
        """The last lines; every file is on its disk afterwards."""
        with ExitStack() as descriptors:  # closed whatever happens: a full disk must not cost descriptors as well
            for descriptor in self._files.values():
                descriptors.callback(os.close, descriptor)
            descriptors.callback(self._files.clear)
            for name, descriptor in self._files.items():
                self.write(name, [_process_line("stopped", process)])
                try:
                    os.fsync(descriptor)
                except OSError as error:  # a pipe or a terminal cannot be synced, and need not be
                    if error.errno not in _CANNOT_SYNC:
                        raise


def _process_line(event: str, process: ProcessInfo) -> dict[str, Any]:
    return {
        "event": event,
        "role": process.role,
        "pid": process.pid,
        "stack_hash": process.stack_hash,
        "unix_time": time.time(),
    }
