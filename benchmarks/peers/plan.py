"""Reading plan.toml: who is measured in which tests, how often, and what is wanted. Starts nothing.

What cannot be right is refused, with the place and what would be: a misspelt key would otherwise be an hour's measurement of
something else.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from workloads import WORKLOADS

BEST_PEER, READ_BANDWIDTH, IMPORT_TORCH = "best peer", "read bandwidth", "import torch"

T = TypeVar("T")

_VARIABLE = re.compile(r"\$(\w+)")


class PlanError(Exception):
    """What is wrong with the plan, and where."""


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """rounds: processes of each entry, in turn; repetitions: in each; the same of a quick run."""

    rounds: int
    repetitions: int
    quick: int
    quick_repetitions: int

    def of(self, quick: bool) -> tuple[int, int]:
        return (self.quick, self.quick_repetitions) if quick else (self.rounds, self.repetitions)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One column of the page: a command with `$VARIABLES` and the tests that it runs.

    weights   the file that a decoded token reads; None: unknown
    missing   variables that are not set; the entry cannot run then, and its words are as they were written
    """

    name: str
    command: tuple[str, ...]
    ours: bool = False
    tests: tuple[str, ...] = tuple(WORKLOADS)
    quick: tuple[str, ...] = ()
    environment: Mapping[str, str]
    weights: str | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Target:
    """`ours` over `over` (see plan.toml) in `test`, or in memory; wanted, aim: at least for speeds, at most for others."""

    ours: str
    wanted: float
    test: str = "decode"
    over: str | None = None
    aim: float | None = None
    memory: bool = False
    less: str | None = None

    @property
    def at_least(self) -> bool:
        return not self.memory and self.test != "first"


@dataclass(frozen=True, kw_only=True)
class Plan:
    tests: Mapping[str, Rounds]
    entries: Sequence[Entry]
    targets: Sequence[Target]

    def entry(self, name: str) -> Entry:
        return next(entry for entry in self.entries if entry.name == name)


def read_plan(file: Path, environ: Mapping[str, str] = os.environ) -> Plan:
    """Raises PlanError."""
    try:
        told = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise PlanError(f"{file} cannot be read: {error}") from error
    _known(told, ("tests", "entries", "targets"), str(file))
    tests = {name: _make(Rounds, rounds, f"tests.{name}") for name, rounds in told.get("tests", {}).items()}
    if tests.keys() != WORKLOADS.keys():
        raise PlanError(f"[tests] of {file} are {', '.join(tests) or 'none'}; there must be {', '.join(WORKLOADS)}")
    entries = [_entry(given, f"entries {number + 1}", environ) for number, given in enumerate(told.get("entries", []))]
    names = [entry.name for entry in entries]
    if len(set(names)) < len(names):
        raise PlanError(
            f"two entries of {file} have one name: {', '.join(sorted({n for n in names if names.count(n) > 1}))}"
        )
    targets = [_make(Target, given, f"targets {number + 1}") for number, given in enumerate(told.get("targets", []))]
    plan = Plan(tests=tests, entries=entries, targets=targets)
    for number, target in enumerate(targets):
        _check(target, plan, f"targets {number + 1}")
    return plan


def _entry(given: Mapping[str, Any], where: str, environ: Mapping[str, str]) -> Entry:
    place = f"{where} ({given.get('name', 'without a name')})"
    _known(given, [field.name for field in fields(Entry) if field.name != "missing"], place)
    words = [*given.get("command", []), *given.get("environment", {}).values(), given.get("weights", "")]
    missing = dict.fromkeys(name for word in words for name in _VARIABLE.findall(word) if name not in environ)

    def filled(word: str) -> str:
        return _VARIABLE.sub(lambda found: environ.get(found[1], found[0]), word)

    read: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    read["environment"] = {name: filled(value) for name, value in given.get("environment", {}).items()}
    read["command"] = tuple(map(filled, given.get("command", ())))
    if "weights" in read:
        read["weights"] = filled(given["weights"])
    entry = _make(Entry, {**read, "missing": tuple(missing)}, place)
    if not entry.command:
        raise PlanError(f"{place} has no command")
    for test in (*entry.tests, *entry.quick):
        if test not in WORKLOADS:
            raise PlanError(f"{place} names the test {test!r}; there are {', '.join(WORKLOADS)}")
    if extra := set(entry.quick) - set(entry.tests):
        raise PlanError(f"{place} has quick tests that are not among its tests: {', '.join(sorted(extra))}")
    return entry


def _check(target: Target, plan: Plan, where: str) -> None:
    names = [entry.name for entry in plan.entries]
    bases = [*names, *(() if target.memory else (BEST_PEER, READ_BANDWIDTH)), None]
    for name, choices in ((target.ours, names), (target.over, bases), (target.less, (None, IMPORT_TORCH))):
        if name not in choices:
            raise PlanError(
                f"{where} names {name!r}; there are {', '.join(str(choice) for choice in choices if choice)}"
            )
    if target.test not in plan.entry(target.ours).tests:
        raise PlanError(f"{where}: {target.ours} does not run the test {target.test!r}")
    if (target.memory or target.over == READ_BANDWIDTH) and plan.entry(target.ours).weights is None:
        raise PlanError(f"{where}: {target.ours} does not say what its weights are")


def _make(kind: type[T], given: Mapping[str, Any], where: str) -> T:
    _known(given, [field.name for field in fields(kind)], where)  # type: ignore[arg-type]
    try:
        return kind(**given)
    except TypeError as error:
        raise PlanError(f"{where}: {error}") from error


def _known(given: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    if unknown := given.keys() - set(keys):
        raise PlanError(f"{where} has {', '.join(sorted(unknown))}; known are {', '.join(keys)}")
