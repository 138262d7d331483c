"""Where fetched models are kept, and the lock that lets one process fetch while others wait. Knows no model."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jackfield.config.errors import ConfigurationError


def cache_directory(download_dir: Path | None) -> Path:
    """`download_dir` if given, else `jackfield` in the user's cache directory (XDG). Not created here."""
    if download_dir is not None:
        return expanded(download_dir, "--download-dir")
    # An XDG path that is not absolute is to be ignored, says the standard
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "jackfield"
    try:
        return Path.home() / ".cache" / "jackfield"
    except RuntimeError as error:  # no HOME, and a user id of no name, as in a container
        raise ConfigurationError(
            f"fetched models are kept in the user's cache directory, but there is none: {error}; name a directory with "
            "--download-dir, or set HOME or XDG_CACHE_HOME"
        ) from error


def unwritable(directory: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"fetched models are to be kept in {directory}, but that is not possible: {error.strerror or error}; "
        "name another directory with --download-dir, or a local model with --model-path"
    )


@contextmanager
def only_one(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file `path`; calls `waiting` once if another process holds it. The system frees it if we die."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def expanded(path: Path, flag: str) -> Path:
    """With `~` and `~user` resolved. Raises ConfigurationError for a user that does not exist, or without a home."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ConfigurationError(f"{flag} {path}: {error}") from error
