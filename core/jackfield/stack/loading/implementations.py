"""Checks of a plugin's hook implementations against the contract: of its module, and of an observer's object. Calls none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType, ModuleType
from typing import Any

from jackfield.config.errors import did_you_mean
from jackfield.hookspecs import KINDS, LIFECYCLE_HOOKS
from jackfield.hookspecs.markers import PROJECT
from jackfield.stack.loading.hooks import hook_table

_MARK = PROJECT + "_impl"
"""Where pluggy's marker leaves its options on a function."""


def implementations(
    module: ModuleType, kind: str, beside: frozenset[str] = frozenset()
) -> tuple[Mapping[str, Callable[..., Any]], list[str]]:
    """Hook name -> function for the provider hook of `kind` in this module, and all that is wrong with the module.

    beside   kinds whose hooks the module may hold as well: those that a one-file plugin declares
    """
    found: dict[str, Callable[..., Any]] = {}
    problems: list[str] = []
    for attribute, function in vars(module).items():
        if not inspect.isroutine(function):
            continue
        options = getattr(function, _MARK, None)
        if not isinstance(options, dict):
            if inspect.isfunction(function) and function.__module__ == module.__name__ and attribute in hook_table():
                problems.append(_undecorated(attribute, function))
            continue
        name = options.get("specname") or attribute
        hook = hook_table().get(name)
        if hook is None:
            if not options.get("optionalhook"):
                problems.append(f"there is no hook {name!r}{did_you_mean(name, hook_table())}")
        elif name in LIFECYCLE_HOOKS:
            problems.append(
                f"{name} is a method of the object that {KINDS['observer'].hook} returns, not a function of the module"
            )
        elif hook.kind != kind and hook.kind in beside:
            continue
        elif hook.kind != kind:
            problems.append(
                f"{name} is a hook of kind {hook.kind!r}; a module of kind {kind!r} cannot hold it: "
                f"move it to a module of its own with an entry point in jackfield.{hook.kind}"
            )
        else:
            problems.extend(_shape_problems(name, function, options, hook.parameters))
            found[name] = function
    if not found and not problems:
        problems.append(
            f"the module registers no hook of kind {kind!r}: decorate {KINDS[kind].hook} with @hookimpl, which comes from "
            "jackfield.hookspecs"
        )
    return MappingProxyType(found), problems


def lifecycle_methods(observer: object) -> tuple[Mapping[str, Callable[..., Any]], list[str]]:
    """Lifecycle hook -> bound method of an observer, and all that is wrong with it. Reads no property of the object."""
    found: dict[str, Callable[..., Any]] = {}
    problems: list[str] = []
    for attribute in dir(observer):
        static = inspect.getattr_static(observer, attribute)
        if isinstance(static, cached_property) or not inspect.isroutine(static):
            continue
        method = getattr(observer, attribute)
        options = getattr(method, _MARK, None)
        if not isinstance(options, dict):
            if attribute in LIFECYCLE_HOOKS:
                problems.append(_undecorated(attribute, method))
            continue
        name = options.get("specname") or attribute
        if name in LIFECYCLE_HOOKS:
            problems.extend(_shape_problems(name, method, options, hook_table()[name].parameters))
            found[name] = method
        elif not options.get("optionalhook"):
            problems.append(f"there is no lifecycle hook {name!r}{did_you_mean(name, LIFECYCLE_HOOKS)}")
    if not found and not problems:
        problems.append(
            f"a {type(observer).__name__} hears nothing: decorate a method such as {LIFECYCLE_HOOKS[0]} with @hookimpl, which "
            "comes from jackfield.hookspecs"
        )
    return MappingProxyType(found), problems


def named_arguments(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Of all that the core could pass, what this implementation asks for: one that is older than an argument works on.

    Raises TypeError for an argument that the core does not have.
    """
    wanted = declared_parameters(function)
    for name in wanted:
        if name not in given:
            raise TypeError(f"{function.__name__} has the unknown argument {name!r}{did_you_mean(name, given)}")
    return {name: given[name] for name in wanted}


def _undecorated(name: str, function: Callable[..., Any]) -> str:
    others = [mark.removesuffix("_impl") for mark in vars(inspect.unwrap(function)) if mark.endswith("_impl")]
    if others:
        # pluggy lets such a plugin register, and calls it never.
        return (
            f"{name} is marked for the pluggy project {others[0]!r} and would never be called: decorate it with @hookimpl, "
            "which comes from jackfield.hookspecs"
        )
    return f"{name} is not decorated with @hookimpl, so it would never be called"


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
