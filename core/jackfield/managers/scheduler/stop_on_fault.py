"""Calls of a plugin without which the replica cannot go on. Knows the ledger, and no plugin."""

from __future__ import annotations

from types import TracebackType

from jackfield.hookspecs import FaultScope
from jackfield.managers.scheduler.watchers import Ledger
from jackfield.stack.errors import PLUGIN_ERRORS


class StopOnFault:
    """`with`: a plugin's error is booked as its fault that stops the replica, and goes on.

    A class, because a generator costs three times as much.
    """

    def __init__(self, ledger: Ledger, plugin: str) -> None:
        self._ledger = ledger
        self._plugin = plugin

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, PLUGIN_ERRORS):
            self._ledger.record(self._plugin, FaultScope.STOP, error)
