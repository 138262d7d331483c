"""Whom the scheduler tells: lifecycle observers and the fault ledger, as the little that it asks of them.

The real ones live in `jackfield.stack`; those here serve when nobody was given, and neither of them is silent about faults.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from jackfield.hookspecs import FaultScope

log = logging.getLogger(__name__)


class Observers(Protocol):
    def listens(self, hook_name: str) -> bool:
        """Whether anybody implements this lifecycle hook; records are built only then."""
        ...

    def notify(self, hook_name: str, **arguments: Any) -> None: ...


class Ledger(Protocol):
    def record(self, plugin: str, scope: FaultScope, error: BaseException) -> None:
        """Count a plugin's fault. May raise, which then stops the replica."""
        ...

    def quarantined(self, plugin: str) -> bool:
        """Whether this plugin must not be called any more. Asked only of plugins whose faults are counted."""
        ...

    def begin_anew(self, plugin: str) -> None:
        """A plugin was put in the place of another, perhaps under the same name: it has no faults yet."""
        ...


class NoObservers:
    def listens(self, hook_name: str) -> bool:
        return False

    def notify(self, hook_name: str, **arguments: Any) -> None:
        return None


class LoggingLedger:
    """Logs every fault with its traceback."""

    def record(self, plugin: str, scope: FaultScope, error: BaseException) -> None:
        log.error("plugin %s failed (%s): %s", plugin, scope.value, error, exc_info=error)

    def quarantined(self, plugin: str) -> bool:
        return False

    def begin_anew(self, plugin: str) -> None:
        return None
