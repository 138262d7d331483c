"""The manifest's `interpreter` table: how kernels of a device that is not here are run on a CPU, slowly, so as to be tested.

Many kernel languages have an interpreter that is switched on by environment variables before a kernel's module is imported.
Only `jackfield conformance --device cpu-interpreted` uses it; no run does. Knows no such language.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

INTERPRETED = "cpu-interpreted"
"""What `--device` of the conformance command calls it. No device of a run."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WANTED = 'of the form { environment = { VARIABLE = "value" }, dtypes = ["float32"] }, where dtypes may be left out'


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """environment   variable -> value, at least one, set before anything of the plugin is imported
    dtypes        run dtypes that the interpreter computes as the device does; empty: all that the plugin claims
    """

    environment: dict[str, str]
    dtypes: tuple[str, ...] = ()


def read_interpreter(value: Any) -> tuple[Interpreter | None, str]:
    """(the table or None if it is wrong, what was wanted), as the checkers of the other manifest keys answer."""
    if not isinstance(value, Mapping) or set(value) - {"environment", "dtypes"}:
        return None, _WANTED
    environment, dtypes = value.get("environment"), value.get("dtypes", [])
    if not isinstance(environment, Mapping) or not environment or not isinstance(dtypes, list):
        return None, _WANTED
    named = all(_VARIABLE.fullmatch(name) and isinstance(text, str) for name, text in environment.items())
    if not named or not all(isinstance(name, str) and name for name in dtypes):
        return None, _WANTED
    return Interpreter(environment=dict(environment), dtypes=tuple(dtypes)), ""
