"""Checks of one plugin module's hook implementations against the contract. Calls none of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from jackfield.config.errors import did_you_mean
from jackfield.hookspecs.markers import PROJECT
from jackfield.stack.hooks import hook_table, hooks_of

_MARK = PROJECT + "_impl"
"""Where pluggy's marker leaves its options on a function."""


def implementations(module: ModuleType, kind: str) -> tuple[Mapping[str, Callable[..., Any]], list[str]]:
    """Hook name -> function for the hooks of `kind` in this module, and all that is wrong with the module."""
    found: dict[str, Callable[..., Any]] = {}
    problems: list[str] = []
    for attribute, function in vars(module).items():
        options = getattr(function, _MARK, None) if inspect.isroutine(function) else None
        if not isinstance(options, dict):
            if inspect.isfunction(function) and function.__module__ == module.__name__ and attribute in hook_table():
                problems.append(f"{attribute} is not decorated with @hookimpl, so it would never be called")
            continue
        name = options.get("specname") or attribute
        hook = hook_table().get(name)
        if hook is None:
            if not options.get("optionalhook"):
                problems.append(f"there is no hook {name!r}{did_you_mean(name, hook_table())}")
        elif hook.kind != kind:
            problems.append(
                f"{name} is a hook of kind {hook.kind!r}; a module of kind {kind!r} cannot hold it: "
                f"move it to a module of its own with an entry point in jackfield.{hook.kind}"
            )
        else:
            problems.extend(_shape_problems(name, function, options, hook.parameters))
            found[name] = function
    if not found and not problems:
        expected = " or ".join(hook.name for hook in hooks_of(kind)[:3])
        problems.append(f"the module registers no hook of kind {kind!r}: decorate {expected} with @hookimpl")
    return MappingProxyType(found), problems


def _shape_problems(
    name: str, function: Callable[..., Any], options: Mapping[str, Any], parameters: tuple[str, ...]
) -> list[str]:
    problems = []
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        problems.append(f"{name} is async; hooks are called synchronously: make it a plain function")
    if options.get("wrapper") or options.get("hookwrapper"):
        problems.append(f"{name} is a wrapper; a plugin cannot wrap the hooks of others")
    elif inspect.isgeneratorfunction(function):
        problems.append(f"{name} is a generator, so its body would never run: return the value instead of yielding it")
    if options.get("tryfirst") or options.get("trylast"):
        problems.append(f"{name} asks for an order with tryfirst or trylast; the order is that of the stack")
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            problems.append(f"{name} must name its arguments one by one ({', '.join(parameters)}), not {parameter}")
        elif parameter.name not in parameters:
            problems.append(
                f"{name} has the unknown argument {parameter.name!r}{did_you_mean(parameter.name, parameters)}"
            )
        elif parameter.default is not parameter.empty:
            problems.append(
                f"{name} gives {parameter.name!r} a default; the core always passes it: leave the default out"
            )
    return problems


def declared_parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The arguments that an implementation asks for; it may leave out those that it does not need."""
    return tuple(inspect.signature(function).parameters)
