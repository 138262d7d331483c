"""Imports of what a manifest names. Whatever goes wrong in a plugin's module becomes one error that names the plugin."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from jackfield.config.errors import did_you_mean
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.resolved import SelectedPlugin


def import_plugin_module(name: str, plugin: SelectedPlugin) -> ModuleType:
    """Import a module of a plugin. Raises PluginLoadError; the plugin's own exception is its `__cause__`."""
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise PluginLoadError(
            f"{plugin.described} cannot be imported: {name} raised {told(error)}{_remedy(error)}"
        ) from error


def import_object(reference: str, plugin: SelectedPlugin) -> Any:
    """What "package.module:name" names. Raises PluginLoadError."""
    module_name, _, attribute = reference.partition(":")
    module = import_plugin_module(module_name, plugin)
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise PluginLoadError(
            f"{plugin.described} names {reference}, but {module_name} has no {attribute!r}"
            f"{did_you_mean(attribute, [name for name in vars(module) if not name.startswith('_')])}"
        ) from None


def told(error: BaseException) -> str:
    """Type and text of an exception on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _remedy(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f". Install what provides {error.name.partition('.')[0]!r}, or choose another plugin"
    return ""
