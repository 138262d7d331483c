"""What became of the plugins of a run and what they cost, over all of its processes. Knows no metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from jackfield.ipc.messages import PluginReport, SchedulerReport
from jackfield.stack.resolved import ResolvedStack
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Costs, Meter, merged


class PluginAccounts:
    """role: of this process. Any thread may ask; reports come on one."""

    def __init__(self, role: str, ledger: FaultLedger, meter: Meter) -> None:
        self._role = role
        self._ledger = ledger
        self._meter = meter
        self._reports: dict[str, SchedulerReport | PluginReport] = {}
        self._busy = 0.0

    def take(self, role: str, report: SchedulerReport | PluginReport) -> None:
        """The newest of a process."""
        self._reports = {**self._reports, role: report}
        if isinstance(report, SchedulerReport):
            self._busy += report.seconds

    def faults(self) -> dict[str, dict[str, Any]]:
        """Plugin -> {count, by_scope, last, quarantined}. One that is switched off in any process is quarantined."""
        sums = self._ledger.snapshot()
        for report in self._reports.values():
            for name, account in report.faults.items():
                theirs = msgspec.structs.asdict(account)
                if (ours := sums.get(name)) is not None:
                    theirs["count"] += ours["count"]
                    scopes = {**ours["by_scope"], **theirs["by_scope"]}
                    theirs["by_scope"] = {
                        scope: ours["by_scope"].get(scope, 0) + theirs["by_scope"].get(scope, 0) for scope in scopes
                    }
                    theirs["quarantined"] |= ours["quarantined"]
                sums[name] = theirs
        return sums

    def costs(self) -> Costs:
        """Plugin -> method or hook -> {calls, seconds, exceptions, overruns}."""
        return merged(self._meter.costs(), *(_costs(report) for report in self._reports.values()))

    def overrunning(self) -> dict[str, dict[str, int]]:
        """Plugin -> method or hook -> calls that took longer than `--plugin-time-budget`; only where there are any."""
        table = {
            plugin: {method: int(row["overruns"]) for method, row in methods.items() if row["overruns"]}
            for plugin, methods in self.costs().items()
        }
        return {plugin: methods for plugin, methods in table.items() if methods}

    def of_stack(self, stack: ResolvedStack) -> dict[str, Any]:
        """{busy_s, plugins}: the stack in order, each plugin with what it did in each process.

        busy_s   seconds in which requests were open, as far as they are reported; `share` is that of a method in them
        """
        processes: dict[str, tuple[Costs, Mapping[str, Any]]] = {
            self._role: (self._meter.costs(), self._ledger.snapshot())
        }
        for role, report in self._reports.items():
            if role == "scheduler" and self._role == "inline":
                continue  # this process itself, which keeps its books here
            accounts = {name: msgspec.structs.asdict(account) for name, account in report.faults.items()}
            processes[role] = (_costs(report), accounts)
        rows = []
        for plugin in stack.plugins:
            lives = {}
            for role, (costs, faults) in processes.items():
                methods, account = costs.get(plugin.key, {}), faults.get(plugin.key)
                if methods or account or role in plugin.processes:
                    lives[role] = {
                        "methods": {
                            method: {**row, "share": row["seconds"] / self._busy if self._busy else None}
                            for method, row in methods.items()
                        },
                        "faults": account,
                        "quarantined": bool(account and account["quarantined"]),
                    }
            rows.append(
                {
                    "plugin": plugin.key,
                    "kind": plugin.kind,
                    "name": plugin.name,
                    "instance": plugin.instance,
                    "origin": plugin.origin,
                    "phases": list(plugin.phases),
                    "quarantined": any(life["quarantined"] for life in lives.values()),
                    "processes": lives,
                }
            )
        return {"busy_s": self._busy, "plugins": rows}


def _costs(report: SchedulerReport | PluginReport) -> Costs:
    return {
        plugin: {method: msgspec.structs.asdict(cost) for method, cost in methods.items()}
        for plugin, methods in report.hooks.items()
    }
