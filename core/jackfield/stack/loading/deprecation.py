"""Finds plugins that use what their contract has deprecated: warns for a minor version, then refuses.

Hooks, arguments and overridden methods are found when a plugin is loaded, before they are called; a field when it is read. pluggy
could warn of the first two (`warn_on_impl`, `warn_on_impl_args`), but without the plugin's name and never as an error.
"""

from __future__ import annotations

import inspect
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from jackfield import hookspecs
from jackfield.hookspecs.deprecations import DEPRECATIONS, ContractDeprecationWarning, Deprecation
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.errors import PluginLoadError

_log = logging.getLogger(__name__)

_NOT_PLUGINS = ("jackfield", "dataclasses", "copy")
"""Top modules that read a record's fields without using what they mean."""


def told(row: Deprecation) -> str:
    """The thing, since when, and what to do instead."""
    speaks = KINDS[row.kind].contract_version
    since = f"{row.since[0]}.{row.since[1]}"
    state = "is gone" if is_over(row) else "will be gone in the next"
    return f"{row.subject} is deprecated since the {row.kind} contract {since} and {state} (this is {speaks}): {row.instead}"


def has_begun(row: Deprecation) -> bool:
    return KINDS[row.kind].contract >= row.since


def deprecations_of(kind: str) -> Iterator[Deprecation]:
    """Those that have begun."""
    return (row for row in DEPRECATIONS if row.kind == kind and has_begun(row))


def is_over(row: Deprecation) -> bool:
    """Whether the minor version in which it was deprecated has passed."""
    return KINDS[row.kind].contract > row.since


def hook_uses(kind: str, hooks: Mapping[str, Callable[..., Any]]) -> Iterator[tuple[Deprecation, Callable[..., Any]]]:
    """What implementations of hooks use, each with the function."""
    # Here, because it brings in the contract, which a list of plugins spares.
    from jackfield.stack.loading.implementations import declared_parameters

    for row in deprecations_of(kind):
        name, _, argument = row.subject.rstrip(")").partition("(")
        function = hooks.get(name)
        if function is not None and (not argument or argument in declared_parameters(function)):
            yield row, function


def method_uses(kind: str, made: type) -> Iterator[tuple[Deprecation, Callable[..., Any]]]:
    """What a plugin's class overrides."""
    for row in deprecations_of(kind):
        owner, _, name = row.subject.partition(".")
        base = getattr(hookspecs, owner, None)
        if name and isinstance(base, type) and issubclass(made, base) and hasattr(base, name):
            method = getattr(made, name)
            if inspect.isfunction(method) and method is not getattr(base, name):
                yield row, method


def check(who: str, uses: Iterable[tuple[Deprecation, Callable[..., Any]]]) -> None:
    """Warn of each, in the log once a process and as a warning at the function's place.

    Raises PluginLoadError for those whose time is over.
    """
    uses = list(uses)
    over = [told(row) for row, _ in uses if is_over(row)]
    if over:
        raise PluginLoadError(f"{who} uses what its contract has lost: {'; '.join(over)}")
    for row, function in uses:
        _log_once(f"{who}: {told(row)}")
        code = inspect.unwrap(function).__code__
        warnings.warn_explicit(f"{who}: {told(row)}", ContractDeprecationWarning, code.co_filename, code.co_firstlineno)


def watch_fields() -> None:
    """From now on, a plugin that reads a deprecated field of a record is told, or refused with AttributeError."""
    for row in DEPRECATIONS:
        owner, _, name = row.subject.partition(".")
        record = getattr(hookspecs, owner, None)
        fields = getattr(record, "__dataclass_fields__", {})
        if has_begun(row) and name in fields and not isinstance(vars(record).get(name), _Watched):
            setattr(record, name, _Watched(row, name))


class _Watched:
    """A field of a record that looks at who reads it. The value stays where a dataclass puts it."""

    def __init__(self, row: Deprecation, name: str) -> None:
        self._row = row
        self._name = name

    def __get__(self, record: object | None, owner: type | None = None) -> Any:
        if record is None:
            raise AttributeError(self._name)
        reader = sys._getframe(1)
        module = str(reader.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _NOT_PLUGINS:
            text = f"{module}: {told(self._row)}"
            if is_over(self._row):
                raise AttributeError(text)
            _log_once(text)
            warnings.warn(text, ContractDeprecationWarning, stacklevel=2)
        return vars(record)[self._name]

    def __set__(self, record: object, value: Any) -> None:
        vars(record)[self._name] = value  # a frozen record's own `__init__` alone comes here


@cache
def _log_once(text: str) -> None:
    _log.warning(text)
