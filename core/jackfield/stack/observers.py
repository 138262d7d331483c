"""Makes the observers of a process, and notifies them one by one under a guard, in stack order.

Costs one dictionary look-up when nobody listens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from jackfield.hookspecs import LIFECYCLE_HOOKS, FaultScope, ProcessInfo
from jackfield.stack.deprecation import check, hook_uses
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.faults import PLUGIN_ERRORS, FaultLedger
from jackfield.stack.hooks import hook_table
from jackfield.stack.implementations import declared_parameters, lifecycle_methods
from jackfield.stack.loading import LoadedPlugin, LoadedStack
from jackfield.stack.metering import Meter

_STARTED = "jackfield_process_started"
_STOPPING = "jackfield_process_stopping"


_Call = tuple[str, Callable[..., Any], tuple[str, ...] | None]
"""An observer's key in the ledger, its metered implementation of one hook, and the arguments that it names; None: all."""


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
        meter: Meter | None = None,
        *,
        threads: bool = True,
    ) -> None:
        """threads: whether several may notify. Then an observer is never called twice at once: inline, requests are told of
        on the thread that submits them, and steps on the one that runs them."""
        self._ledger = ledger
        self._process = process
        self._lock = threading.RLock() if threads else None
        meter = meter if meter is not None else Meter()
        made = [(plugin.selected.key, _made(plugin, process)) for plugin in loaded.of("observer")]
        self._all: dict[str, tuple[_Call, ...]] = {
            name: tuple(_call(key, name, methods[name], meter) for key, methods in made if name in methods)
            for name in LIFECYCLE_HOOKS
        }
        self._live = dict(self._all)

    def listens(self, hook_name: str) -> bool:
        """Whether anybody would hear this hook; ask before building its record. KeyError for an unknown hook."""
        return bool(self._live[hook_name])

    def notify(self, hook_name: str, **kwargs: Any) -> None:
        """Call every live observer of this hook with the arguments of its spec. KeyError for an unknown hook."""
        if calls := self._live[hook_name]:
            self._tell(calls, kwargs)

    def started(self) -> None:
        """`jackfield_process_started`."""
        self.notify(_STARTED, process=self._process)

    def stopping(self) -> None:
        """`jackfield_process_stopping`. A quarantined observer is called as well, this once: it has things to close."""
        self._tell(self._all[_STOPPING], {"process": self._process})

    def _tell(self, calls: tuple[_Call, ...], kwargs: dict[str, Any]) -> None:
        if self._lock is None:
            self._call_each(calls, kwargs)
        else:
            with self._lock:
                self._call_each(calls, kwargs)

    def _call_each(self, calls: tuple[_Call, ...], kwargs: dict[str, Any]) -> None:
        for key, function, names in calls:
            try:
                if names is None:
                    function(**kwargs)
                else:
                    function(**{name: kwargs[name] for name in names})
            except PLUGIN_ERRORS as error:
                self._ledger.record(key, FaultScope.COUNT, error)
                if self._ledger.quarantined(key):
                    self._refresh()

    def _refresh(self) -> None:
        self._live = {
            name: tuple(call for call in calls if not self._ledger.quarantined(call[0]))
            for name, calls in self._all.items()
        }


def _call(key: str, name: str, function: Callable[..., Any], meter: Meter) -> _Call:
    named = declared_parameters(function)
    complete = set(named) == set(hook_table()[name].parameters)
    return key, meter.wrap(key, name, function), None if complete else named


def _made(plugin: LoadedPlugin, process: ProcessInfo) -> Mapping[str, Callable[..., Any]]:
    """The lifecycle hooks of one observer, made now."""
    methods, problems = lifecycle_methods(plugin.make({"process": process}))
    selected = plugin.selected
    if problems:
        raise PluginLoadError(f"{selected.described} breaks the contract ({selected.module}): {'; '.join(problems)}")
    check(selected.described, hook_uses(selected.kind, methods))
    return methods
