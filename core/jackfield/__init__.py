"""Jackfield: a plugin-oriented LLM serving runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from jackfield.entrypoints.engine import Engine

__all__ = ["Engine", "__version__"]


def __getattr__(name: str) -> Any:
    # Lazy, so that `import jackfield.hookspecs` stays as light as the contract itself.
    if name == "Engine":
        from jackfield.entrypoints.engine import Engine

        return Engine
    raise AttributeError(f"module 'jackfield' has no attribute {name!r}")
