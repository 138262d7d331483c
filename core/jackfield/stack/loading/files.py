"""Imports a one-file plugin: the bytes that were found, and no others, under a module name that belongs to those bytes."""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from jackfield.stack.discovery.plugin_file import read_source


class FileChanged(Exception):
    """The file is not the one that was found. The text says what to do."""


class _Loader(importlib.abc.SourceLoader):
    """Compiles the given bytes. Without file times it neither reads nor writes a .pyc, which could be of other bytes."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path = path
        self._source = source

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str | bytes) -> bytes:
        if path != self._path:
            raise OSError(path)
        return self._source


def import_file(module: str, path: str, digest: str) -> ModuleType:
    """The module of these bytes, executed at most once in a process. `__file__` is the path, so that tracebacks show lines.

    Raises FileChanged, Unreadable, and whatever the file's own code raises.
    """
    if module in sys.modules:
        return sys.modules[module]
    source = read_source(Path(path))
    if hashlib.sha256(source).hexdigest() != digest:
        raise FileChanged(f"{path} was changed while this run was starting: start it again")
    spec = importlib.util.spec_from_file_location(module, path, loader=_Loader(path, source))
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    # Before the code runs: dataclasses and pydantic look their own module up.
    sys.modules[module] = loaded
    try:
        spec.loader.exec_module(loaded)
    except BaseException:
        sys.modules.pop(module, None)
        raise
    return loaded


def missing_sibling(path: str, name: str) -> bool:
    """Whether a module that could not be imported lies beside the file: one file is all that such a plugin has."""
    folder = Path(path).parent
    return (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()


def file_digest(path: str) -> str:
    """SHA-256 of the file's bytes as they are now. Raises Unreadable."""
    return hashlib.sha256(read_source(Path(path))).hexdigest()


def declared_kinds(module: ModuleType) -> frozenset[str]:
    """The kinds that a one-file plugin's constants declare, by which its module may hold hooks of each."""
    table, tables = getattr(module, "PLUGIN", None), getattr(module, "PLUGINS", ())
    return frozenset(entry["kind"] for entry in ([table] if table else tables))
