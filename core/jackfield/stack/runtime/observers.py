"""Makes the observers of a process, and notifies them one by one under a guard, in stack order.

Costs one dictionary look-up when nobody listens.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from jackfield.hookspecs import LIFECYCLE_HOOKS, FaultScope, ProcessInfo
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.loading.deprecation import check, hook_uses
from jackfield.stack.loading.hooks import hook_table
from jackfield.stack.loading.implementations import declared_parameters, lifecycle_methods
from jackfield.stack.loading.load import LoadedPlugin, LoadedStack
from jackfield.stack.runtime.faults import FaultLedger, ready_for
from jackfield.stack.runtime.metering import Cost, Meter, Rounds

_STARTED = "jackfield_process_started"
_STOPPING = "jackfield_process_stopping"


_Call = tuple[Callable[[Any], Any], Cost, str]
"""One observer's implementation of one hook: a function that takes what the hook is about, its one argument, or a dict of
several; what it costs; the observer's own key in the ledger."""


class _Listeners:
    """Those that hear one hook, in stack order; who is quarantined leaves."""

    __slots__ = ("calls", "name", "rounds")

    def __init__(self, name: str, calls: tuple[_Call, ...]) -> None:
        self.name = name
        self.calls = calls
        self.rounds = Rounds()
        for _, cost, _ in calls:
            cost.join(self.rounds)


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
        self._meter = meter if meter is not None else Meter()
        made = [(plugin.selected.key, _made(plugin, process)) for plugin in loaded.of("observer")]
        self._all = {
            name: tuple(_call(key, name, methods[name], self._meter) for key, methods in made if name in methods)
            for name in LIFECYCLE_HOOKS
        }
        self._live = {name: _Listeners(name, calls) for name, calls in self._all.items()}

    def listens(self, hook_name: str) -> bool:
        """Whether anybody would hear this hook; ask before building its record. KeyError for an unknown hook."""
        return bool(self._live[hook_name].calls)

    def notify(self, hook_name: str, **kwargs: Any) -> None:
        """Call every live observer of this hook with the arguments of its spec. KeyError for an unknown hook."""
        listeners = self._live[hook_name]
        if not listeners.calls:
            return
        if self._lock is None:
            self._tell(listeners, kwargs)
        else:
            with self._lock:
                self._tell(listeners, kwargs)

    def started(self) -> None:
        """`jackfield_process_started`."""
        self.notify(_STARTED, process=self._process)

    def stopping(self) -> None:
        """`jackfield_process_stopping`. A quarantined observer is called as well, this once: it has things to close."""
        with self._lock or nullcontext():
            self._tell(_Listeners(_STOPPING, self._all[_STOPPING]), {"process": self._process})

    def _tell(self, listeners: _Listeners, kwargs: dict[str, Any]) -> None:
        value: Any = kwargs
        if len(kwargs) == 1:
            (value,) = kwargs.values()
        # This is on the path of every step, and to count and time a call costs more than an observer that does little: rounds
        # are counted instead of calls, and the end of one call is the beginning of the next.
        timer, budget = self._meter.timer, self._meter.budget
        listeners.rounds.count += 1
        began = timer()
        for function, cost, key in listeners.calls:
            try:
                function(value)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                self._failed(key, cost, timer() - began, ready_for(error))
                began = timer()
                continue
            ended = timer()
            spent = ended - began
            cost.seconds += spent
            if spent > budget:
                self._meter.overrun(key, listeners.name, spent)
            began = ended

    def _failed(self, key: str, cost: Cost, spent: float, error: BaseException) -> None:
        cost.seconds += spent
        cost.exceptions += 1
        self._ledger.record(key, FaultScope.COUNT, error)
        if self._ledger.quarantined(key):
            self._live = {
                name: _Listeners(name, tuple(call for call in old.calls if call[2] != key))
                if any(whose == key for _, _, whose in old.calls)
                else old
                for name, old in self._live.items()
            }
            for calls in self._all.values():
                for _, its_cost, whose in calls:
                    if whose == key:
                        its_cost.join(None)


def _call(key: str, name: str, function: Callable[..., Any], meter: Meter) -> _Call:
    named, cost = declared_parameters(function), meter.cost(key, name)
    if not named:
        return (lambda _: function()), cost, key
    if len(hook_table()[name].parameters) > 1:  # hooks are about one record each, but a later one may be about more
        return (lambda given: function(**{name: given[name] for name in named})), cost, key
    (parameter,) = inspect.signature(function).parameters.values()
    if parameter.kind is parameter.KEYWORD_ONLY:
        return (lambda value: function(**{parameter.name: value})), cost, key
    return function, cost, key


def _made(plugin: LoadedPlugin, process: ProcessInfo) -> Mapping[str, Callable[..., Any]]:
    """The lifecycle hooks of one observer, made now."""
    methods, problems = lifecycle_methods(plugin.make({"process": process}))
    selected = plugin.selected
    if problems:
        raise PluginLoadError(f"{selected.described} breaks the contract ({selected.module}): {'; '.join(problems)}")
    check(selected.described, hook_uses(selected.kind, methods))
    return methods
