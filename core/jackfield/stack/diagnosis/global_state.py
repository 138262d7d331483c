"""What the whole process shares and an import may change: threads, files, signals, environment, other people's modules.

Takes snapshots and compares two of them. Linux tells threads and files of native code as well; elsewhere Python's alone.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import types
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

GUARDED = "jackfield"
"""The package whose modules and classes nobody may change."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The process at one moment. rss in bytes; states: what -> a value that is equal if nothing was changed."""

    rss: int
    threads: frozenset[str]
    native_threads: int
    files: frozenset[str]
    states: Mapping[str, Any]
    attributes: Mapping[tuple[str, str], int]


def snapshot() -> Snapshot:
    """Opens nothing that stays open, and changes nothing."""
    process = psutil.Process()
    return Snapshot(
        rss=process.memory_info().rss,
        threads=frozenset(thread.name for thread in threading.enumerate()),
        native_threads=process.num_threads(),
        files=frozenset(_open_files()),
        states=_states(),
        attributes={
            (owner, name): id(value) for owner, holder in _guarded() for name, value in list(vars(holder).items())
        },
    )


def changes(before: Snapshot, after: Snapshot) -> list[tuple[str, str]]:
    """(code, words) for everything of the process that is different, memory and new modules excepted."""
    found = [("thread", f"it started the thread {name!r}") for name in sorted(after.threads - before.threads)]
    native = after.native_threads - before.native_threads - len(found)
    if native > 0:
        found.append(("thread", f"it started {native} native thread{'s' if native > 1 else ''}"))
    found += [("file", f"it left {name} open") for name in sorted(after.files - before.files)]
    found += [
        (f"state:{what}", f"it changed {what}{_detail(before.states[what], value)}")
        for what, value in after.states.items()
        if value != before.states[what]
    ]
    owners = {owner for owner, _ in before.attributes}
    for (owner, name), value in after.attributes.items():
        known = before.attributes.get((owner, name))
        if known == value or owner not in owners or name.startswith("__pydantic"):
            continue
        if known is None and (f"{owner}.{name}" in sys.modules or name.startswith("__")):
            continue  # a submodule that was imported
        found.append(("patch", f"it {'replaced' if known else 'added'} {owner}.{name}"))
    return found


def foreign_members(package: str) -> list[str]:
    """Functions and classes of `package` that stand in modules or classes of Jackfield: patched in, whenever that was."""
    mine = (package, package + ".")
    return sorted(
        f"{owner}.{name}"
        for owner, holder in _guarded()
        for name, value in list(vars(holder).items())
        if isinstance(value, types.FunctionType | type)
        and ((value.__module__ or "") == mine[0] or (value.__module__ or "").startswith(mine[1]))
    )


def touches_cuda() -> bool:
    """Whether this process has a CUDA context, by whichever library."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return True
    return any(name.startswith("/dev/nvidia-uvm") for name in _open_files())


def _guarded() -> Iterator[tuple[str, Any]]:
    for name, module in list(sys.modules.items()):
        if module is None or not (name == GUARDED or name.startswith(GUARDED + ".")):
            continue
        yield name, module
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__ == name:
                yield f"{name}.{value.__qualname__}", value


def _open_files() -> Iterator[str]:
    """Targets of this process's descriptors beyond the standard three."""
    folder = "/proc/self/fd"
    if not os.path.isdir(folder):
        yield from (file.path for file in psutil.Process().open_files())
        return
    for entry in os.listdir(folder):
        try:
            target = os.readlink(f"{folder}/{entry}")
        except OSError:  # the descriptor of the listing itself
            continue
        if int(entry) > 2 and not target.startswith("/proc/"):
            yield target


def _states() -> dict[str, Any]:
    return {
        "warnings.filters": tuple(str(entry) for entry in warnings.filters),
        "the handlers of the root logger": tuple(type(handler).__name__ for handler in logging.getLogger().handlers),
        "the level of the root logger": logging.getLogger().level,
        "os.environ": dict(os.environ),
        "sys.path": tuple(sys.path),
        "sys.meta_path": tuple(str(finder) for finder in sys.meta_path),
        "sys.excepthook": sys.excepthook,
        "the recursion limit": sys.getrecursionlimit(),
        "the working directory": os.getcwd(),
        "signal handlers": {number.name: signal.getsignal(number) for number in signal.Signals},
    }


def _detail(before: Any, after: Any) -> str:
    if isinstance(after, dict):
        names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        return f": {', '.join(names)}"
    if isinstance(after, tuple):
        new = [str(item) for item in after if item not in before]
        return f": {', '.join(new)}" if new else ""
    return "" if callable(after) else f": {after!r} instead of {before!r}"
