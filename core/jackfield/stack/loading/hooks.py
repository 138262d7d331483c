"""The hooks of the contract as a table read from the hook specs themselves: kind, parameters, context and return type."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from jackfield.hookspecs import KINDS, LIFECYCLE_HOOKS, SPECS


@dataclass(frozen=True, kw_only=True)
class Hook:
    """One hook.

    parameters  names that the core passes
    context     class of the `context` argument; None if the hook has none
    returns     class that the answer must be an instance of; None: nothing is returned
    """

    name: str
    kind: str
    parameters: tuple[str, ...]
    context: type[Any] | None
    returns: type[Any] | None


@cache
def hook_table() -> Mapping[str, Hook]:
    """Hook name -> what the contract says of it. Raises RuntimeError if the kinds' table and the specs disagree."""
    by_hook = {kind.hook: kind.name for kind in KINDS.values()}
    by_hook |= dict.fromkeys(LIFECYCLE_HOOKS, "observer")
    table = {}
    for specs in SPECS:
        for name, function in vars(specs).items():
            if not name.startswith("jackfield_"):
                continue
            if name not in by_hook:
                raise RuntimeError(f"the hook {name} of {specs.__name__} belongs to no kind")
            hints = typing.get_type_hints(function)
            returns = hints["return"]
            table[name] = Hook(
                name=name,
                kind=by_hook[name],
                parameters=tuple(inspect.signature(function).parameters)[1:],
                context=hints.get("context"),
                returns=None if returns is type(None) else typing.get_origin(returns) or returns,
            )
    missing = sorted(set(by_hook) - set(table))
    if missing:
        raise RuntimeError(f"no hook spec for {', '.join(missing)}")
    return MappingProxyType(table)


def the_hook(kind: str) -> Hook:
    """The provider hook of a kind: what its module implements."""
    return hook_table()[KINDS[kind].hook]
