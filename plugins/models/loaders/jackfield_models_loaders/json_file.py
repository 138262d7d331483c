"""Reads JSON files of a checkpoint with errors that name the file, and lays overrides over a config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jackfield.hookspecs import ModelSourceError

MAX_JSON_BYTES = 512 << 20
"""No checkpoint has a JSON file near this size; a larger one is something else under the wrong name."""


def read_bytes(path: Path) -> bytes:
    """The whole file. Raises ModelSourceError."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ModelSourceError(f"{path}: far too large for a JSON file; this is not what its name says")
        return path.read_bytes()
    except OSError as error:
        raise ModelSourceError(f"{path}: cannot be read: {error.strerror or error}") from error


def parse_value(path: Path, content: bytes | str) -> Any:
    """Any JSON; `path` is for the message only. Raises ModelSourceError."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelSourceError(f"{path}: not valid JSON ({error}); fetch the file again or mend it") from error


def parse_object(path: Path, content: bytes | str) -> dict[str, Any]:
    """A JSON object; `path` is for the message only. Raises ModelSourceError."""
    value = parse_value(path, content)
    if not isinstance(value, dict):
        raise ModelSourceError(f"{path}: holds a JSON {type(value).__name__}, not an object; fetch the file again")
    return value


def read_value(path: Path) -> Any:
    """The JSON in a file. Raises ModelSourceError."""
    return parse_value(path, read_bytes(path))


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ModelSourceError."""
    return parse_object(path, read_bytes(path))


def read_text(path: Path) -> str:
    """A UTF-8 text file. Raises ModelSourceError."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelSourceError(f"{path}: is not UTF-8 text ({error}); fetch the file again") from error


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`: objects are merged entry by entry, everything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        held = result.get(key)
        result[key] = merged(held, value) if isinstance(held, Mapping) and isinstance(value, Mapping) else value
    return result
