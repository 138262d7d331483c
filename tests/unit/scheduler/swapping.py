"""Live swaps in the scheduler's tests: every policy that is installed, made by the real path, and a hash that counts them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.hookspecs import SchedulePolicy
from jackfield.stack.discovery.catalogue import PluginRow, Status
from jackfield.stack.discovery.scan import discover
from jackfield.stack.loading.load import INLINE, LoadedStack, load_stack
from jackfield.stack.resolved import ResolvedStack, SelectedPlugin
from jackfield.stack.selection.checks import manifest_of
from jackfield.stack.selection.swap import NewPolicy

KIND = "schedule_policy"


@cache
def installed() -> dict[str, PluginRow]:
    return {row.name: row for row in discover().rows(KIND) if row.status is Status.OK}


@cache
def loaded(name: str) -> LoadedStack:
    row = installed()[name]
    selected = SelectedPlugin(
        kind=KIND,
        name=name,
        instance=name,
        distribution=row.distribution,
        version=row.version,
        package=row.package,
        module=row.module,
        manifest=manifest_of(row),
        reason="a test asked for it",
    )
    return load_stack(ResolvedStack(plugins=(selected,)), INLINE)


class InstalledPolicies:
    """`swaps.PolicySource` without a cache to agree with. handed: what to give for a name instead of what is installed."""

    def __init__(
        self, running: str = "fcfs", *, max_running: int = 8, page_size: int = 1, total_slots: int = 256
    ) -> None:
        self.running = loaded(running).plugin(KIND).selected
        self.handed: dict[str, SchedulePolicy] = {}
        self.swaps = 0
        self._fields: dict[str, Any] = {"max_running": max_running, "page_size": page_size, "total_slots": total_slots}

    @property
    def stack_hash(self) -> str:
        return f"hash {self.swaps}"

    def prepare(self, name: str, options: Mapping[str, Any]) -> NewPolicy | None:
        if name not in installed():
            raise ConfigurationError(f"no policy {name!r}")
        if name == self.running.name:
            return None
        stack = loaded(name)
        policy = self.handed.get(name) or stack.make(KIND, **self._fields)
        return NewPolicy(policy=policy, selected=stack.plugin(KIND).selected, stack_hash=f"hash {self.swaps + 1}")

    def adopt(self, new: NewPolicy) -> None:
        self.running = new.selected
        self.swaps += 1
