"""The private directory in which one run's sockets live. Knows no socket and no process.

Who made it holds a lock on it for as long as the run lasts. So a directory whose lock is free was left behind by a crash,
whatever has become of its process number, and the next start removes it. (Cleaners of temporary directories leave locked
ones alone, too.)
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "jackfield-"

LONGEST_PATH = 99
"""Bytes of a socket's path. The system's own limit is 108 on Linux and 104 elsewhere, the final zero included."""

LONGEST_NAME = len("detokenizer.sock")


class RunDirectory:
    """Made by `create`; `remove` ends it. path: the directory, mode 0700."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def create(cls, base: Path | None = None) -> RunDirectory:
        """A fresh directory under `base` (None: the system's directory for temporary files). Removes stale ones first.

        Raises OSError if no directory can be made there.
        """
        base = _short_base() if base is None else base
        remove_stale(base)
        while True:
            path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=base))
            descriptor = _lock(path)
            if descriptor is not None:
                return cls(path, descriptor)
            # Somebody else's start took it for a stale one before it was locked.

    def remove(self) -> None:
        """Remove it with all that is in it. A second call does nothing."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            remove_tree(self.path)
            os.close(descriptor)


def socket_path(directory: Path, name: str) -> Path:
    """Where the socket of the process `name` lives."""
    return directory / f"{name}.sock"


def remove_tree(path: Path) -> None:
    """Remove a run directory; several processes may do so at once."""
    shutil.rmtree(path, ignore_errors=True)


def remove_stale(base: Path) -> list[Path]:
    """Remove this user's run directories whose owner has gone. Returns them."""
    removed = []
    for path in base.glob(f"{PREFIX}*-*"):
        try:
            if path.is_symlink() or not path.is_dir() or path.stat().st_uid != os.getuid():
                continue
        except OSError:
            continue
        descriptor = _lock(path)
        if descriptor is not None:
            remove_tree(path)
            os.close(descriptor)
            removed.append(path)
    return removed


def _short_base() -> Path:
    base = Path(tempfile.gettempdir())
    longest = len(os.fsencode(base)) + len(f"/{PREFIX}4194304-12345678/") + LONGEST_NAME
    # A socket's path has a limit that other files' paths have not.
    return base if longest <= LONGEST_PATH else Path("/tmp")


def _lock(path: Path) -> int | None:
    """A descriptor that holds the directory's lock; None if another has it, or if the directory has gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
