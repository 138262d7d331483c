"""The ledger of plugin faults: counts them, logs each kind of error once, quarantines observers, stops the replica.

Knows scopes and limits; not what the caller does with a fault that it may survive.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from jackfield.hookspecs import FaultScope
from jackfield.stack.errors import PLUGIN_ERRORS, PluginStop

_log = logging.getLogger(__name__)


class Foreign(Exception):
    """What a plugin raised is no Exception: asyncio's CancelledError, for one, or the panic of an extension module. It is the
    `__cause__`; with a name of its own it would pass all who are ready for faults."""


def ready_for(error: BaseException) -> BaseException:
    """The error of a plugin as it may go on."""
    if isinstance(error, (*PLUGIN_ERRORS, KeyboardInterrupt)):
        return error
    foreign = Foreign(named(error))
    foreign.__cause__ = error
    return foreign


_RAISED_BY = "_jackfield_raised_by"


def blame(error: BaseException, plugin: str) -> None:
    """Note on the error that it came out of the code of plugin "kind.instance". A worker calls other plugins, and whoever books
    an error as the worker's can tell whose it was; the innermost is believed."""
    if not hasattr(error, _RAISED_BY):
        with suppress(Exception):  # an error's class may let nobody set attributes
            setattr(error, _RAISED_BY, plugin)


def _who(plugin: str, error: BaseException) -> str:
    inner = getattr(error, _RAISED_BY, plugin)
    return plugin if inner == plugin else f"{inner}, which {plugin} called,"


MAX_WORDS = 2000
"""Characters of an error's message that are kept and told."""


def words(error: BaseException) -> str:
    """The message of a plugin's error as any process can be told it: valid UTF-8 of bounded length, whatever its `__str__`
    does."""
    try:
        message = str(error)[:MAX_WORDS]
    except Exception as unreadable:
        message = f"(its message cannot be read: {type(unreadable).__name__})"
    return message.encode("utf-8", "replace").decode()


def named(error: BaseException) -> str:
    """The same, behind the error's type."""
    return f"{type(error).__name__}: {words(error)}"


@dataclass
class _Account:
    count: int = 0
    by_scope: dict[str, int] = field(default_factory=dict)
    last: str = ""
    quarantined: bool = False
    forgiven: int = 0


class FaultLedger:
    """One a process. Thread-safe: sinks run on a thread of their own.

    mode    "count", or "raise": every fault stops (`--plugin-faults`)
    limit   faults of one plugin at which DEGRADE becomes a stop and COUNT a quarantine (`--plugin-fault-limit`); 1 or more
    """

    def __init__(self, mode: Literal["count", "raise"] = "count", limit: int = 10) -> None:
        if limit < 1:
            raise ValueError(f"the limit must be at least 1, not {limit}")
        self.mode = mode
        self.limit = limit
        self._accounts: dict[str, _Account] = {}
        self._logged: set[tuple[str, type[BaseException]]] = set()
        self._lock = threading.Lock()

    def record(self, plugin: str, scope: FaultScope, error: BaseException) -> None:
        """Book one fault of the plugin "kind.instance". Returns if the caller may go on, as the scope says.

        Raises PluginStop from `error` for STOP, for a DEGRADE that reached the limit, and for anything in mode "raise".
        """
        message, who = words(error), _who(plugin, error)
        with self._lock:
            account = self._accounts.setdefault(plugin, _Account())
            account.count += 1
            account.by_scope[scope.value] = account.by_scope.get(scope.value, 0) + 1
            account.last = named(error)
            in_scope = account.by_scope[scope.value] - (account.forgiven if scope is FaultScope.DEGRADE else 0)
            first = (plugin, type(error)) not in self._logged
            self._logged.add((plugin, type(error)))
            quarantine = scope is FaultScope.COUNT and in_scope >= self.limit and not account.quarantined
            account.quarantined |= quarantine
        if first:
            _log.error("plugin %s failed (scope %s): %s", who, scope.value, message, exc_info=error)
        if self.mode == "raise":
            raise PluginStop(f"plugin {who} failed and --plugin-faults is 'raise': {message}") from error
        if scope is FaultScope.STOP:
            raise PluginStop(f"plugin {who} failed and the replica cannot go on: {message}") from error
        if scope is FaultScope.DEGRADE and in_scope >= self.limit:
            raise PluginStop(
                f"plugin {plugin} failed {in_scope} times, the limit is {self.limit}: {message}"
            ) from error
        if quarantine:
            _log.error("plugin %s failed %d times and is switched off until the restart", plugin, in_scope)

    def begin_anew(self, plugin: str) -> None:
        """Other code stands under this name from now on: the faults so far stay counted, but bring no limit nearer, and its first
        one is logged with its traceback."""
        with self._lock:
            self._logged = {key for key in self._logged if key[0] != plugin}
            if (account := self._accounts.get(plugin)) is not None:
                account.forgiven = account.by_scope.get(FaultScope.DEGRADE.value, 0)

    def quarantined(self, plugin: str) -> bool:
        """Whether this plugin must not be called any more."""
        account = self._accounts.get(plugin)
        return account is not None and account.quarantined

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Plugin -> {count, by_scope, last, quarantined}, for /server_info and /health."""
        with self._lock:
            return {
                plugin: {
                    "count": account.count,
                    "by_scope": dict(account.by_scope),
                    "last": account.last,
                    "quarantined": account.quarantined,
                }
                for plugin, account in sorted(self._accounts.items())
            }
