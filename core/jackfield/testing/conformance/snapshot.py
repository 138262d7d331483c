"""The state of an object as a value that can be compared later: containers, arrays and attributes, to any depth."""

from __future__ import annotations

import itertools
import random
import sys
import types
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np

_OPAQUE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.GenericAlias)
_CONTAINERS = (list, tuple, deque)
_FORMS = frozenset(
    {"dict", "mappingproxy", "list", "tuple", "deque", "bytearray", "memoryview", "generator", "count", "again"}
)
"""First words of frozen pairs that are no names of attributes."""
_LOOKED_INTO = frozenset({"builtins", "collections", "dataclasses", "enum", "types"})
"""Modules of the standard library whose objects may be somebody's state; others (loggers, locks) are constants."""


def snapshot(value: Any) -> Hashable:
    """Equal for two moments exactly if nothing in between changed that can be reached from `value` by attributes and items.

    Functions, classes and modules count as constants, and an object that was replaced by an equal one has changed.
    """
    return _frozen(value, {})


def changed(before: Any, after: Any, path: str = "") -> str:
    """Where two snapshots differ first, as a path of attributes and places; "" if they are equal."""
    if before == after:
        return ""
    if isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        differs = next(place for place in range(len(before)) if before[place] != after[place])
        return changed(before[differs], after[differs], path + (_step(before) if differs == 1 else ""))
    return path.lstrip(".") or "its state"


def _step(frozen: tuple[Any, ...]) -> str:
    """The name before a value that changed: of an attribute, or the text that is its key."""
    name = frozen[0]
    if isinstance(name, tuple) and name[:1] == ("str",):
        return f".{name[1][1:-1]}"
    return f".{name}" if len(frozen) == 2 and isinstance(name, str) and name not in _FORMS else ""


def same(one: Any, other: Any) -> bool:
    """Whether two answers are equal, arrays and their dtypes included."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and bool(one == other)


def size(value: Any) -> int:
    """How many parts the state has: grows with whatever an object collects."""
    parts: list[int] = []
    _frozen(value, {}, parts)
    return sum(parts)


def module_state(module: types.ModuleType) -> dict[str, Any]:
    """The variables of a module that can hold state of its own: containers, numbers, and objects of its package."""
    package = module.__name__.partition(".")[0]
    kept = (Mapping, *_CONTAINERS, set, bytearray, np.ndarray, int, float, str, random.Random, itertools.count)
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("__")
        and not isinstance(value, _OPAQUE)
        and (isinstance(value, kept) or type(value).__module__.partition(".")[0] == package)
    }


def _frozen(value: Any, seen: dict[int, int], parts: list[int] | None = None) -> Hashable:
    if parts is not None:
        parts.append(value.size if isinstance(value, np.ndarray) else 1)
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return (type(value).__name__, repr(value))
    if isinstance(value, _OPAQUE):
        return id(value)
    if isinstance(value, random.Random):
        return ("generator", value.getstate())
    if isinstance(value, itertools.count):
        return ("count", repr(value))
    if id(value) in seen:
        return ("again", seen[id(value)])
    seen[id(value)] = len(seen)
    if isinstance(value, np.ndarray):
        return ("array", value.shape, value.dtype.str, value.tobytes())
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return ("generator", str(getattr(value, "bit_generator", value)), str(_generator_state(value)))
    if isinstance(value, Mapping):
        items = [(_frozen(key, seen, parts), _frozen(item, seen, parts)) for key, item in value.items()]
        return (type(value).__name__, tuple(items))
    if isinstance(value, set | frozenset):
        # Order without meaning; elements are hashable, so that they are values or count by identity.
        return (type(value).__name__, frozenset(_frozen(item, {}, parts) for item in value), len(value))
    if isinstance(value, bytearray | memoryview):
        return (type(value).__name__, bytes(value))
    if isinstance(value, _CONTAINERS):
        return (type(value).__name__, tuple(_frozen(item, seen, parts) for item in value))
    home = type(value).__module__.partition(".")[0]
    if home in sys.stdlib_module_names and home not in _LOOKED_INTO:
        return (type(value).__name__, id(value))
    attributes = tuple((name, _frozen(item, seen, parts)) for name, item in _attributes(value))
    return (type(value).__name__, id(value), attributes)


def _generator_state(value: np.random.Generator | np.random.RandomState) -> Any:
    return value.bit_generator.state if isinstance(value, np.random.Generator) else value.get_state(legacy=False)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)
