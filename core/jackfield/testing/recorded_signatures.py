"""The call signatures of a library that a test machine may not have, kept as a file beside the tests.

A stand-in that binds every call by them refuses what the library would refuse; where the library is installed, a test holds the
file against it. Knows signatures alone, nothing of what the functions do.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_PLAIN = (str, int, float, bool, type(None))
_NO_DEFAULT = "no default"


def signatures_to_json(functions: Mapping[str, Callable[..., Any]]) -> str:
    """name -> function, as text: parameters with their kinds, and defaults as far as JSON has them."""
    found = {name: _parameters(function) for name, function in functions.items()}
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def recorded_signatures(file: Path) -> dict[str, inspect.Signature]:
    """name -> signature, as `signatures_to_json` wrote them."""
    return {
        name: inspect.Signature(
            [
                inspect.Parameter(
                    one["name"],
                    inspect._ParameterKind[one["kind"]],
                    default=inspect.Parameter.empty if one["default"] == _NO_DEFAULT else one["default"],
                )
                for one in parameters
            ]
        )
        for name, parameters in json.loads(file.read_text()).items()
    }


def _parameters(function: Callable[..., Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "kind": one.kind.name,
            "default": _NO_DEFAULT if one.default is one.empty else _plain(one.default),
        }
        for one in inspect.signature(function).parameters.values()
    ]


def _plain(default: Any) -> Any:
    return default if isinstance(default, _PLAIN) else repr(default)
