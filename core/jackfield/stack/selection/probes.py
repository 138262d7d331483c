"""What a manifest's lists cannot say: the plugin's probe, called here or in a process of its own.

A probe's module imports no torch. `explain` must import no plugin at all, so it asks through a child process.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import msgspec

from jackfield.config.device import DeviceDescription
from jackfield.config.errors import did_you_mean
from jackfield.hookspecs import Need, Problem
from jackfield.stack.child import ChildFailure, call_in_child
from jackfield.stack.discovery.catalogue import PluginRow
from jackfield.stack.errors import PLUGIN_ERRORS, PluginLoadError
from jackfield.stack.loading.implementations import declared_parameters, named_arguments
from jackfield.stack.loading.imports import import_plugin_module, told
from jackfield.stack.resolved import SelectedPlugin
from jackfield.stack.selection.choice import as_selected

_FAULT = "its probe "
"""How the problems begin that are the probe's own."""

Prober = Callable[[PluginRow, Need, DeviceDescription], list[str]]
"""Problems that the row's probe finds; none: it can serve. A probe that raises has one problem."""


def no_probe(row: PluginRow, need: Need, device: DeviceDescription) -> list[str]:
    """Asks nothing: for a resolution without a model, whose needs are not known yet."""
    return []


def probe_here(row: PluginRow, need: Need, device: DeviceDescription) -> list[str]:
    """Import the probe's module and ask it."""
    if row.manifest is None or row.manifest.probe is None:
        return []
    return _ask(as_selected(row, "it is probed"), need, device)


def probe_in_child(row: PluginRow, need: Need, device: DeviceDescription) -> list[str]:
    """The same in a fresh process, so that nothing of the plugin is imported into this one."""
    if row.manifest is None or row.manifest.probe is None:
        return []
    plugin = as_selected(row, "it is probed")
    order = {
        name: msgspec.to_builtins(value) for name, value in (("plugin", plugin), ("need", need), ("device", device))
    }
    try:
        problems: list[str] = call_in_child(__name__, order)
    except ChildFailure as error:
        return [f"{_FAULT}{row.manifest.probe} failed: {error}"]
    return problems


def asking_only(prober: Prober, allowed: Callable[[PluginRow], bool]) -> Prober:
    """Of other rows nothing is asked: a stranger's code does not run for the sake of a reason."""
    return lambda row, need, device: prober(row, need, device) if allowed(row) else []


def with_the_probes(
    problems: list[str], prober: Prober, row: PluginRow, need: Need, device: DeviceDescription
) -> list[str]:
    """What a manifest's lists refuse, and what the probe would: told together, so that nobody mends the one (moves to another
    machine) only to meet the other there (a package that is missing). A probe that fails was asked about a run that is none of
    its plugin's, which is no fault of it."""
    if not problems:
        raise ValueError("only for a plugin that is refused already")
    more = prober(row, need, device)
    return problems + [text for text in more if text not in problems and not text.startswith(_FAULT)]


def ask_probe(reference: str, need: Need, device: DeviceDescription) -> list[str]:
    """Import the module of a probe ("package.module:check"), if it is not there yet, and call it."""
    module, _, name = reference.partition(":")
    try:
        check = getattr(importlib.import_module(module), name)
        given = {"need": need, "device": device}
        unknown = [argument for argument in declared_parameters(check) if argument not in given]
        if unknown:
            return [f"{_FAULT}{reference} has the unknown argument {unknown[0]!r}{did_you_mean(unknown[0], given)}"]
        answer = check(**named_arguments(check, given))
        wrong = [item for item in answer if not isinstance(item, Problem)]
    except PLUGIN_ERRORS as error:
        return [f"{_FAULT}{reference} failed: {told(error)}"]
    if wrong:
        return [f"{_FAULT}{reference} must return a list of Problem, not of {type(wrong[0]).__name__}"]
    return [str(problem) for problem in answer]


def _ask(plugin: SelectedPlugin, need: Need, device: DeviceDescription) -> list[str]:
    assert plugin.manifest.probe is not None
    if plugin.path is not None:
        try:
            import_plugin_module(plugin.module, plugin)
        except PluginLoadError as error:
            return [f"{_FAULT}failed: {error}"]
    return ask_probe(plugin.manifest.probe, need, device)


def answer(order: dict[str, Any]) -> list[str]:
    """The child's part, see `child.py`."""
    return _ask(
        msgspec.convert(order["plugin"], SelectedPlugin),
        msgspec.convert(order["need"], Need),
        msgspec.convert(order["device"], DeviceDescription),
    )
