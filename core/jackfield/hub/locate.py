"""From what the user named to files on this machine: nothing, a path, or a Hugging Face id. Knows no file format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jackfield.config import embedded
from jackfield.config.errors import ConfigurationError, either, nearest
from jackfield.config.wheel_models import WHEEL_MODELS
from jackfield.hub.cache_directory import expanded
from jackfield.hub.embedded import locate_embedded
from jackfield.hub.huggingface import ID, fetch_from_hub
from jackfield.hub.wheel_model import locate_wheel_model

FILE_ENDINGS = (".gguf", ".safetensors", ".json", ".bin", ".pt", ".pth")
"""Of names that are files, even where they look like an id (models/tiny.gguf)."""


@dataclass(frozen=True, kw_only=True)
class LocatedModel:
    """path: a file or a directory; source: how it was found; name: what it is called when nobody says otherwise."""

    path: Path
    source: Literal["embedded", "local file", "local directory", "wheel", "hub"]
    name: str


def locate_model(
    model_path: str | None,
    *,
    revision: str | None = None,
    download_dir: Path | None = None,
    progress: bool = True,
) -> LocatedModel:
    """Find the model, fetching it if need be.

    model_path     None: the embedded model; a path that exists; a name of `WHEEL_MODELS`; else an id `owner/name` of the
                   Hugging Face hub. What begins with `.`, `/` or `~` is always a path.
    revision       branch, tag or commit; only for the hub
    download_dir   where fetched models are kept; None: the user's cache, for the hub its own
    progress       show bars on stderr

    Raises ConfigurationError, with one message that says what to do.
    """
    if model_path is None:
        _no_revision(revision, "the embedded model")
        path = locate_embedded(download_dir, progress=progress)
        return LocatedModel(path=path, source="embedded", name=embedded.NAME)
    if not model_path.strip():
        raise ConfigurationError("--model-path: is empty; leave it out for the embedded model")
    path = expanded(Path(model_path), "--model-path")
    try:
        path.stat()
    except (FileNotFoundError, ValueError):  # ValueError: a NUL, which no path has
        pass
    except OSError as error:  # too long a name, a directory that may not be entered, links in a circle
        raise ConfigurationError(f"--model-path {model_path[:200]}: {error.strerror}") from error
    if path.is_file() or path.is_dir():
        _no_revision(revision, f"the local model {model_path}")
        name = path.resolve().name if path.is_dir() else path.stem
        return LocatedModel(path=path, source="local file" if path.is_file() else "local directory", name=name)
    if path.exists():
        raise ConfigurationError(f"--model-path {model_path}: is neither a file nor a directory")
    if (wheel := WHEEL_MODELS.get(model_path)) is not None:
        _no_revision(revision, f"{model_path}, which travels in a Python package,")
        found = locate_wheel_model(wheel, download_dir, progress=progress)
        return LocatedModel(path=found, source="wheel", name=model_path)
    local_only = model_path.startswith((".", "/", "~")) or model_path.lower().endswith(FILE_ENDINGS)
    if local_only or not ID.fullmatch(model_path):
        raise ConfigurationError(_not_found(model_path, path, local_only))
    cache = None if download_dir is None else expanded(download_dir, "--download-dir")
    found = fetch_from_hub(model_path, revision=revision, cache=cache, progress=progress)
    return LocatedModel(path=found, source="hub", name=model_path)


def _no_revision(revision: str | None, what: str) -> None:
    if revision is not None:
        raise ConfigurationError(f"--revision {revision}: {what} has no revisions; it is for models of the hub")


def _not_found(model_path: str, path: Path, local_only: bool) -> str:
    """Names the first part of the path that is missing, and what lies near it."""
    missing = path
    while not missing.parent.is_dir() and missing.parent != missing:
        missing = missing.parent
    message = f"--model-path {model_path}: no such file or directory"
    if missing != path:
        message += f" ({missing} does not exist)"
    if not local_only:
        message += ", and not an id of the form owner/name"
    try:
        around = [entry.name for entry in missing.parent.iterdir()]
    except OSError:
        around = []
    near = nearest(missing.name, around)
    if near:
        message += "; did you mean " + either(repr(str(missing.parent / name)) for name in near) + "?"
    return message
