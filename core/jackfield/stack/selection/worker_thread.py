"""Whether the worker runs on a thread of its own: decided from what event loop and worker declare, before either is made."""

from __future__ import annotations

from jackfield.stack.discovery.catalogue import PluginRow
from jackfield.stack.selection.checks import manifest_of

OVERLAP = "overlap"
"""Feature of an event loop: it launches a step before the one before it is committed."""

ASYNC = "async"
"""Feature of a worker: `launch` and `sample` return at once, and what is waited for is the result."""


def worker_thread(loop: PluginRow, worker: PluginRow) -> tuple[bool, str]:
    """Whether, and why."""
    if OVERLAP not in manifest_of(loop).features:
        return False, f"no: event loop {loop.name!r} has one step in flight, so nothing runs beside it"
    if ASYNC in manifest_of(worker).features:
        return False, f"no: worker {worker.name!r} declares {ASYNC!r}, so its steps run beside event loop {loop.name!r}"
    return True, (
        f"yes: event loop {loop.name!r} goes on while a step runs, and worker {worker.name!r} does not declare "
        f"{ASYNC!r}: its launch may return only when the step has ended"
    )
