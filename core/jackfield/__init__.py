"""Jackfield: a plugin-oriented LLM serving runtime."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from jackfield.config.errors import ConfigurationError
    from jackfield.entrypoints.engine import Engine
    from jackfield.managers.errors import RequestError

__all__ = ["ConfigurationError", "Engine", "RequestError", "__version__"]

_HOMES = {
    "ConfigurationError": "jackfield.config.errors",
    "Engine": "jackfield.entrypoints.engine",
    "RequestError": "jackfield.managers.errors",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that `import jackfield.hookspecs` stays as light as the contract itself.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'jackfield' has no attribute {name!r}")
