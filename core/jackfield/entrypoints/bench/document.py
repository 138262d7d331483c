"""The JSON document of a measurement: what was asked, what ran on what, every round, and the figures made of them.

`read` refuses what is none, so that whoever compares or plots need not look.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jackfield import __version__
from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.bench.document_shape import problem
from jackfield.entrypoints.bench.machine import software_facts

SCHEMA = 1
"""Raised when a field changes its meaning or goes; more fields may come without it."""

STDIO = "-"

_OF_ALL = ("label", "model", "workload", "machine", "versions", "stack", "args")

KINDS = {"offline": (*_OF_ALL, "results", "rounds"), "serve": (*_OF_ALL, "server", "api", "limits", "loads")}
"""Kind -> what a reader may count on."""


def document(kind: str, **parts: Any) -> dict[str, Any]:
    """parts: whatever belongs to the kind; see docs/benchmarking.md."""
    return {
        "schema": SCHEMA,
        "kind": kind,
        "made_by": f"jackfield {__version__}",
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": software_facts(),
        **parts,
    }


def stack_facts(report: Mapping[str, Any]) -> dict[str, Any]:
    """The hash and the plugins of a stack, out of what `get_server_info` or /server_info tells of it."""
    return {
        "hash": report["hash"],
        "plugins": {
            f"{plugin['kind']}.{plugin['instance']}": {
                "distribution": f"{plugin['distribution']} {plugin['version']}",
                "options": plugin["options"],
            }
            for plugin in report["plugins"]
        },
    }


def write(told: Mapping[str, Any], file: str) -> None:
    """file: a path, or - for stdout. Raises ConfigurationError."""
    text = json.dumps(told, indent=2, ensure_ascii=False, default=str) + "\n"
    if file == STDIO:
        sys.stdout.write(text)
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"bench: {file} cannot be written: {error.strerror}") from error


def check_writable(file: str | None) -> None:
    """Before the measurement, which may take minutes. Raises ConfigurationError."""
    if file is None or file == STDIO:
        return
    if not file:
        raise ConfigurationError("bench: the name of the file is empty; name one, or - for standard output")
    folder = Path(file).parent
    if not folder.is_dir() or Path(file).is_dir():
        raise ConfigurationError(f"bench: {file} cannot be written: {folder} is no folder, or {file} is one")
    if not os.access(file if Path(file).exists() else folder, os.W_OK):
        raise ConfigurationError(f"bench: {file} cannot be written: it may not be, or {folder} may not")


def read(file: str) -> dict[str, Any]:
    """Raises ConfigurationError for what is no document of `jackfield bench`, or one of a later schema."""
    try:
        text = sys.stdin.read() if file == STDIO else Path(file).read_text(encoding="utf-8")
        told = json.loads(text)
    except OSError as error:
        raise ConfigurationError(f"bench: {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"bench: {file} is no JSON document: {error}") from error
    if not isinstance(told, dict) or "schema" not in told or told.get("kind") not in list(KINDS):
        raise ConfigurationError(
            f"bench: {file} is not what `jackfield bench` writes with --json: `schema`, or a `kind` of {' or '.join(KINDS)}, is "
            "missing"
        )
    if told["schema"] != SCHEMA:
        raise ConfigurationError(
            f"bench: {file} has schema {told['schema']}, and {SCHEMA} is what this version reads: measure anew, or read it with "
            f"{told.get('made_by', 'the version that wrote it')}"
        )
    if missing := [name for name in KINDS[told["kind"]] if name not in told]:
        raise ConfigurationError(f"bench: {file} is not whole: {', '.join(missing)} is missing")
    if (wrong := problem(told)) is not None:
        raise ConfigurationError(f"bench: {file} is not as `jackfield bench` wrote it: {wrong}")
    return told
