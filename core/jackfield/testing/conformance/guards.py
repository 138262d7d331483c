"""What a call did beside answering: clocks, random generators, threads and I/O that it used, and how much work it was.

Work is counted (bytecodes, bytes), never timed. Sees what Python code calls, by whatever name it was imported; not what
compiled code does inside one call.
"""

from __future__ import annotations

import gc
import io
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import numpy as np

Answer = TypeVar("Answer")

_HARMLESS_OS = frozenset({"fspath", "getpid", "cpu_count", "getppid"})
_CLOCKS = frozenset(
    getattr(time, name)
    for name in dir(time)
    if name.startswith(("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime"))
    and callable(getattr(time, name))
)


def forbidden_acts(call: Callable[[], Any]) -> list[str]:
    """What of clock, random generator, thread and I/O the call used, each told once, in order. The call's errors pass."""
    acts: dict[str, None] = {}

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and (act := _act(argument)) is not None:
            acts.setdefault(f"{act} (in {frame.f_code.co_qualname}, {frame.f_code.co_filename}:{frame.f_lineno})")

    drawn = random.getstate(), np.random.get_state(legacy=False)
    previous = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(previous)
    if not acts and (random.getstate() != drawn[0] or str(np.random.get_state(legacy=False)) != str(drawn[1])):
        acts.setdefault("it changed the state of a global random generator")
    return list(acts)


def _act(called: Any) -> str | None:
    """What a builtin function does that a pure one may not, or None."""
    name, module, owner = called.__name__, getattr(called, "__module__", None), getattr(called, "__self__", None)
    if called in _CLOCKS or (name in ("now", "utcnow", "today") and getattr(owner, "__module__", "") == "datetime"):
        return f"it reads the clock: {name}"
    if called is time.sleep or module == "select":
        return f"it waits: {name}"
    if owner is getattr(random, "_inst", None) or (
        owner is not None and owner is getattr(np.random.mtrand, "_rand", None)
    ):
        return f"it uses a global random generator: {name}"
    if name in ("urandom", "getrandom"):
        return f"it draws randomness from the system: {name}"
    if module == "_thread" and name.startswith("start_"):
        return f"it starts a thread: {name}"
    if module in ("posix", "nt") and name not in _HARMLESS_OS:
        return f"it does I/O: os.{name}"
    if module in ("_socket", "_ssl", "_posixsubprocess") or called is print or called is open or called is input:
        return f"it does I/O: {name}"
    if isinstance(owner, io.IOBase) and not isinstance(owner, io.StringIO | io.BytesIO):
        return f"it does I/O: {type(owner).__name__}.{name}"
    return None


@contextmanager
def shallow_stack(frames: int = 120) -> Iterator[None]:
    """Leaves so many frames of Python: what recurses once for every node of a deep tree is a RecursionError."""
    depth, frame = 0, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def bytecodes(call: Callable[[], Any]) -> int:
    """How many bytecode instructions Python ran for this call."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(previous)
    return count


def peak_bytes(call: Callable[[], Any]) -> int:
    """The most memory, arrays included, that this call held on top of what was there before."""
    gc.collect()
    started = not tracemalloc.is_tracing()
    if started:
        tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        call()
        return max(0, tracemalloc.get_traced_memory()[1] - before)
    finally:
        if started:
            tracemalloc.stop()
