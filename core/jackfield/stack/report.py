"""The stack and the catalogue as JSON values: what `/server_info`, `explain --json` and `plugins list --json` hold."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.diagnosis.deprecation_scan import deprecated_uses
from jackfield.stack.discovery.catalogue import PluginRow

if TYPE_CHECKING:
    from jackfield.config.topology import Topology
    from jackfield.stack.resolved import ResolvedStack


def stack_report(stack: ResolvedStack, *, stack_hash: str | None, epoch: int = 0) -> dict[str, Any]:
    """{hash, epoch, layout, weights, worker_thread, their reasons, plugins, rejected}. The hash is None while a part is open."""
    return {
        "hash": stack_hash,
        "epoch": epoch,
        "layout": None if stack.layout is None else stack.layout.name,
        "layout_reason": stack.layout_reason,
        "weights": None if stack.weights is None else stack.weights.name,
        "weights_reason": "" if stack.weights is None else stack.weights.reason,
        "worker_thread": stack.worker_thread,
        "worker_thread_reason": stack.worker_thread_reason,
        "plugins": [
            {
                "kind": plugin.kind,
                "name": plugin.name,
                "instance": plugin.instance,
                "distribution": plugin.distribution,
                "version": plugin.version,
                "path": plugin.path,
                "options": dict(plugin.options),
                "phases": list(plugin.phases),
                "processes": list(plugin.processes),
                "reason": plugin.reason,
            }
            for plugin in stack.plugins
        ],
        "rejected": [dataclasses.asdict(rejected) for rejected in stack.rejected],
    }


def row_report(row: PluginRow) -> dict[str, Any]:
    """{kind, name, distribution, version, path, summary, status, problem, contract, hooks, deprecations}.

    path       the file of a one-file plugin, else None
    problem    "" where there is none
    contract   the version for which the plugin was written, "" if it says none
    hooks      what a plugin of its kind implements
    deprecations   what its files seem to use of what its contract has deprecated, with what to use instead
    """
    hook = KINDS[row.kind].hook if row.kind in KINDS else None
    return {
        "kind": row.kind,
        "name": row.name,
        "distribution": row.distribution,
        "version": row.version,
        "path": None if row.path is None else str(row.path),
        "summary": row.summary,
        "status": row.status.value,
        "problem": row.problem,
        "contract": "" if row.manifest is None else row.manifest.contract.get(row.kind, ""),
        "hooks": [] if hook is None else [hook],
        "deprecations": deprecated_uses(row),
    }


def topology_report(topology: Topology) -> dict[str, Any]:
    """The topology's fields, processes and ranks included."""
    return dataclasses.asdict(topology)
