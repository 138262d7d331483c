"""What a contract will lose: the one table of deprecations, from which the loader warns and later refuses.

A row is written in the minor version that deprecates, and stays until the major version that takes the thing away.
"""

from __future__ import annotations

from dataclasses import dataclass


class ContractDeprecationWarning(DeprecationWarning):
    """A plugin uses what its contract will lose. A plugin's tests can make it an error:
    `-W error::jackfield.hookspecs.deprecations.ContractDeprecationWarning`."""


@dataclass(frozen=True, kw_only=True)
class Deprecation:
    """One thing that plugins should stop using. Its use warns in the minor version `since` and is an error in the next.

    kind      whose contract version counts
    subject   "jackfield_observer" (a hook), "jackfield_observer(context)" (its argument), "SchedulePolicy.take" (a method that
              plugins override) or "StepRecord.tenants" (a field that they read)
    since     (major, minor)
    instead   what to do, as the end of a sentence: "use `open_tenants`"
    """

    kind: str
    subject: str
    since: tuple[int, int]
    instead: str


DEPRECATIONS: tuple[Deprecation, ...] = ()
