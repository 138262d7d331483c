"""Makes the observers of a process, and notifies them one by one under a guard, in stack order.

Costs one dictionary look-up when nobody listens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from jackfield.hookspecs import LIFECYCLE_HOOKS, FaultScope, ProcessInfo
from jackfield.stack.deprecation import check, hook_uses
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.faults import FaultLedger
from jackfield.stack.implementations import declared_parameters, lifecycle_methods
from jackfield.stack.loading import LoadedPlugin, LoadedStack

_STARTED = "jackfield_process_started"
_STOPPING = "jackfield_process_stopping"


class _Listener:
    """One observer's implementation of one hook, with the time spent in it."""

    __slots__ = ("calls", "function", "key", "parameters", "seconds")

    def __init__(self, key: str, function: Callable[..., Any]) -> None:
        self.key = key
        self.function = function
        self.parameters = declared_parameters(function)
        self.calls = 0
        self.seconds = 0.0


class ObserverHub:
    """The observers of one process. Raises PluginLoadError if one of them cannot be made or breaks the contract.

    An exception out of a lifecycle hook is booked with scope COUNT; an observer that reaches the limit is not called again.
    In mode "raise" `notify` lets the ledger's PluginStop through.
    """

    def __init__(
        self,
        loaded: LoadedStack,
        ledger: FaultLedger,
        process: ProcessInfo,
        *,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._ledger = ledger
        self._process = process
        self._timer = timer
        # Inline, requests are told of on the thread that submits them, and steps on the one that runs them; an observer
        # is never called twice at once.
        self._lock = threading.RLock()
        made = [(plugin.selected.key, _made(plugin, process)) for plugin in loaded.of("observer")]
        self._all: dict[str, list[_Listener]] = {
            name: [_Listener(key, methods[name]) for key, methods in made if name in methods]
            for name in LIFECYCLE_HOOKS
        }
        self._live: dict[str, tuple[_Listener, ...]] = {}
        self._refresh()

    def listens(self, hook_name: str) -> bool:
        """Whether anybody would hear this hook; ask before building its record. KeyError for an unknown hook."""
        return bool(self._live[hook_name])

    def notify(self, hook_name: str, **kwargs: Any) -> None:
        """Call every live observer of this hook with the arguments of its spec. KeyError for an unknown hook."""
        for listener in self._live[hook_name]:
            self._call(listener, kwargs)

    def started(self) -> None:
        """`jackfield_process_started`."""
        self.notify(_STARTED, process=self._process)

    def stopping(self) -> None:
        """`jackfield_process_stopping`. A quarantined observer is called as well, this once: it has things to close."""
        for listener in self._all[_STOPPING]:
            self._call(listener, {"process": self._process})

    def timings(self) -> dict[str, dict[str, dict[str, float]]]:
        """Plugin "kind.instance" -> hook -> {calls, seconds}; hooks that were never called are left out."""
        table: dict[str, dict[str, dict[str, float]]] = {}
        for name, listeners in self._all.items():
            for listener in listeners:
                if listener.calls:
                    row = {"calls": float(listener.calls), "seconds": listener.seconds}
                    table.setdefault(listener.key, {})[name] = row
        return table

    def _call(self, listener: _Listener, kwargs: dict[str, Any]) -> None:
        if len(listener.parameters) != len(kwargs):
            kwargs = {name: kwargs[name] for name in listener.parameters}
        with self._lock:
            began = self._timer()
            try:
                listener.function(**kwargs)
            except Exception as error:
                self._ledger.record(listener.key, FaultScope.COUNT, error)
                if self._ledger.quarantined(listener.key):
                    self._refresh()
            finally:
                listener.calls += 1
                listener.seconds += self._timer() - began

    def _refresh(self) -> None:
        self._live = {
            name: tuple(listener for listener in listeners if not self._ledger.quarantined(listener.key))
            for name, listeners in self._all.items()
        }


def _made(plugin: LoadedPlugin, process: ProcessInfo) -> Mapping[str, Callable[..., Any]]:
    """The lifecycle hooks of one observer, made now."""
    methods, problems = lifecycle_methods(plugin.make({"process": process}))
    selected = plugin.selected
    if problems:
        raise PluginLoadError(f"{selected.described} breaks the contract ({selected.module}): {'; '.join(problems)}")
    check(selected.described, hook_uses(selected.kind, methods))
    return methods
