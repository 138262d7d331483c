"""What differs between two recordings of a contract, and whether plugins that were written before would notice.

The rules are those of `docs/versioning.md`. Knows facts as text alone, so that it can be shown any change.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tests.contract.facts import Facts

Version = tuple[int, int]


@dataclass(frozen=True)
class Change:
    """additive: a plugin built before it goes on working."""

    additive: bool
    text: str


def changes(old: Facts, new: Facts) -> list[Change]:
    """In the order of their subjects."""
    return [change for subject in sorted(old.keys() | new.keys()) for change in _change(subject, old, new)]


def problems(version: Version, now: Facts, recorded: Mapping[Version, Facts]) -> list[str]:
    """What is wrong with a kind that calls its contract `version` and is `now`, after all that was ever recorded of it."""
    if not recorded:
        return [f"nothing is recorded of {_text(version)}"]
    found = []
    steps = sorted(recorded)
    for before, after in pairwise(steps):
        found += _too_small(before, after, changes(recorded[before], recorded[after]))
    last = steps[-1]
    if version < last:
        return [*found, f"the contract says {_text(version)}, but {_text(last)} is recorded"]
    differs = changes(recorded[last], now)
    if version > last:
        found += _too_small(last, version, differs)
        found.append(f"{_text(version)} is not recorded")
    elif differs:
        told = "; ".join(change.text for change in differs)
        if version[0] == 0:
            found.append(f"the contract is not what is recorded of {_text(version)}: {told}")
        else:
            needed = (version[0], version[1] + 1) if all(change.additive for change in differs) else (version[0] + 1, 0)
            found.append(f"{_text(version)} is frozen and differs, which needs version {_text(needed)}: {told}")
    return found


def _too_small(before: Version, after: Version, differs: list[Change]) -> Iterator[str]:
    """Below 1.0, and from one major to the next, anything may change."""
    if before[0] == after[0] and before[0] > 0:
        for change in differs:
            if not change.additive:
                yield f"{_text(before)} to {_text(after)} is a minor step, and needs a major one: {change.text}"


def _change(subject: str, old: Facts, new: Facts) -> Iterator[Change]:
    before, after = old.get(subject), new.get(subject)
    if before == after:
        return
    if after is None:
        yield Change(False, f"{subject} is gone")
    elif before is None:
        owner = subject.rpartition(".")[0]
        yield _added(subject, after, of_an_old_class=owner in old)
    else:
        yield Change(_widened(before, after), f"{subject} was `{before}` and is `{after}`")


def _added(subject: str, fact: str, *, of_an_old_class: bool) -> Change:
    """A new member of something that plugins make or implement must be optional for them."""
    if of_an_old_class and fact.startswith("required "):
        return Change(False, f"{subject} is new and required of every plugin: `{fact}`")
    if of_an_old_class and fact.startswith("field") and " = " not in fact:
        return Change(False, f"{subject} is new and has no default: `{fact}`")
    return Change(True, f"{subject} is new: `{fact}`")


def _widened(before: str, after: str) -> bool:
    """Whether what was true for plugins still is, with something beside it."""
    if before.startswith("field") and after.startswith("field"):
        return " = " not in before and after.startswith(before + " = ")
    if before.startswith("required ") and after == before.removeprefix("required "):
        return True
    form = before.partition("(")[0]
    if form not in ("hook ", "function ") or after.partition("(")[0] != form:
        return False  # what plugins implement keeps its arguments: a method of a new name takes more
    old, new = _arguments(before), _arguments(after)
    if old.returns != new.returns or any(new.given.get(name) != given for name, given in old.given.items()):
        return False
    if form == "hook ":
        return True  # it is passed by name what it names
    return (
        new.positional[: len(old.positional)] == old.positional and new.given.keys() - old.given.keys() <= new.optional
    )


@dataclass(frozen=True)
class _Arguments:
    """given: name -> annotation and default; positional: in their order; optional: those with a default."""

    given: Mapping[str, str]
    positional: tuple[str, ...]
    optional: frozenset[str]
    returns: str


def _arguments(fact: str) -> _Arguments:
    signature = fact[fact.index("(") :]
    (function,) = ast.parse(f"def f{signature}: ...").body
    assert isinstance(function, ast.FunctionDef)
    positional = function.args.args
    pairs = [
        *zip(
            positional, [None] * (len(positional) - len(function.args.defaults)) + function.args.defaults, strict=True
        ),
        *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True),
    ]
    return _Arguments(
        given={arg.arg: f"{ast.dump(arg)} {ast.dump(default) if default else ''}" for arg, default in pairs},
        positional=tuple(arg.arg for arg in positional),
        optional=frozenset(arg.arg for arg, default in pairs if default is not None),
        returns=ast.dump(function.returns) if function.returns else "",
    )


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
