"""Which plugins `jackfield conformance` tests, with which options, and which of them share a process.

Reads manifests alone; how the tests are run and shown stands in `cli.conformance`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.config.text_values import option_assignment
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.discovery.interpreter import INTERPRETED
from jackfield.stack.selection.single import find_one, split_key

TORCH_KINDS = ("attention", "loader", "logits_processor", "model", "ops", "worker")
"""Kinds whose suites import torch."""


@dataclass
class Chosen:
    """A plugin to test, and the options that were given for it."""

    row: PluginRow
    options: dict[str, Any] = field(default_factory=dict)


def process_groups(chosen: dict[str, Chosen], device: str) -> list[dict[str, Chosen]]:
    """What is tested in a process of its own: the kinds without torch, so that it is seen whether they do without it, and
    plugins whose interpreters are switched on in the same way."""
    groups: dict[tuple[Any, ...], dict[str, Chosen]] = {}
    for key, one in chosen.items():
        environment = interpreting(one.row, device)
        groups.setdefault((one.row.kind in TORCH_KINDS, *sorted(environment.items())), {})[key] = one
    return [groups[key] for key in sorted(groups)]


def interpreting(row: PluginRow, device: str) -> dict[str, str]:
    """The environment of a plugin's tests beyond the usual."""
    interpreter = None if row.manifest is None or device != INTERPRETED else row.manifest.interpreter
    return {} if interpreter is None else interpreter.environment


def chosen_plugins(namespace: argparse.Namespace, catalogue: Catalogue) -> dict[str, Chosen]:
    """By "kind.name". Raises ConfigurationError."""
    try:
        rows = _rows(namespace, catalogue)
    except ConfigurationError as error:
        raise ConfigurationError(f"conformance: {error}") from None
    chosen = {f"{row.kind}.{row.name}": Chosen(row) for row in rows}
    if namespace.all_options is not None:
        if len(chosen) != 1:
            raise ConfigurationError("conformance: --options is for one plugin; with several use --option")
        try:
            given = json.loads(namespace.all_options)
        except ValueError as error:
            raise ConfigurationError(f"conformance: --options is no JSON: {error}") from None
        if not isinstance(given, dict):
            raise ConfigurationError(f"conformance: --options must be a JSON object, not {given!r}")
        next(iter(chosen.values())).options = given
    for text in namespace.single_options:
        _set_option(chosen, text)
    return chosen


def _rows(namespace: argparse.Namespace, catalogue: Catalogue) -> list[PluginRow]:
    if namespace.all:
        if namespace.plugins_to_test:
            raise ConfigurationError("name plugins as KIND.NAME, or say --all, not both")
        return _all(catalogue, namespace.on_device)
    if namespace.plugins_to_test:
        rows = [find_one(catalogue, *split_key(text)) for text in namespace.plugins_to_test]
        for row in rows:
            if namespace.on_device == INTERPRETED and row.manifest is not None and row.manifest.interpreter is None:
                raise ConfigurationError(
                    f"{row.kind}.{row.name} has no `interpreter` in its manifest, under which its kernels would run on a "
                    f"CPU: test it on a device that it lists ({', '.join(row.manifest.devices) or 'any'})"
                )
        return rows
    rows = [row for row in catalogue if row.path is not None]
    if not rows:
        raise ConfigurationError("name a plugin as KIND.NAME, or say --all or --plugin FILE")
    for row in rows:
        if row.status is not Status.OK:
            raise ConfigurationError(f"{row.path}: {row.problem}")
    return rows


def _all(catalogue: Catalogue, device: str) -> list[PluginRow]:
    """Every healthy plugin that the device can show; the others are named on stderr."""
    rows, left_out = [], []
    for row in catalogue:
        if row.status is not Status.OK or row.manifest is None:
            continue
        devices, interpreter = row.manifest.devices, row.manifest.interpreter
        if device == INTERPRETED and interpreter is None:
            continue
        if device != INTERPRETED and devices and device not in devices:
            hint = "" if interpreter is None else f", or {INTERPRETED}"
            left_out.append(f"{row.kind}.{row.name} is left out: --device {' or '.join(devices)}{hint} tests it")
            continue
        rows.append(row)
    if not rows:
        raise ConfigurationError(f"no plugin that is installed can be tested with --device {device}")
    sys.stderr.write("".join(f"{line}\n" for line in left_out))
    return rows


def _set_option(chosen: dict[str, Chosen], text: str) -> None:
    full = text
    if len(chosen) == 1 and not any(text.startswith(f"{key}.") for key in chosen):
        full = f"{next(iter(chosen))}.{text}"
    try:
        key, path, value = option_assignment(full)
    except ValueError as error:
        raise ConfigurationError(f"conformance: --option {text}: {error}") from None
    if key not in chosen:
        raise ConfigurationError(f"conformance: --option {text}: {key} is not among the plugins to test")
    table = chosen[key].options
    for step in path[:-1]:
        table = table.setdefault(step, {})
    table[path[-1]] = value
