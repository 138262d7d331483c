"""Imports of what a manifest names. Whatever goes wrong in a plugin's module becomes one error that names the plugin."""

from __future__ import annotations

import importlib
import traceback
from types import ModuleType
from typing import Any

from jackfield.config.errors import did_you_mean
from jackfield.stack.discovery.plugin_file import Unreadable
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.loading.files import FileChanged, import_file, missing_sibling
from jackfield.stack.resolved import SelectedPlugin


def import_plugin_module(name: str, plugin: SelectedPlugin) -> ModuleType:
    """Import a module of a plugin, or its one file. Raises PluginLoadError; the plugin's own exception is its `__cause__`."""
    try:
        if plugin.path is not None and name == plugin.module:
            return import_file(name, plugin.path, plugin.digest)
        return importlib.import_module(name)
    except (FileChanged, Unreadable) as error:
        raise PluginLoadError(f"{plugin.described} cannot be imported: {error}") from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        where = name if plugin.path is None else f"the file{_line(error, plugin.path)}"
        raise PluginLoadError(
            f"{plugin.described} cannot be imported: {where} raised {told(error)}{_remedy(error, plugin)}"
        ) from error


def import_object(reference: str, plugin: SelectedPlugin) -> Any:
    """What "package.module:name" names. Raises PluginLoadError."""
    module_name, _, attribute = reference.partition(":")
    module = import_plugin_module(module_name, plugin)
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise PluginLoadError(
            f"{plugin.described} names {reference if plugin.path is None else attribute!r}, but "
            f"{module_name if plugin.path is None else 'the file'} has no {attribute!r}"
            f"{did_you_mean(attribute, [name for name in vars(module) if not name.startswith('_')])}"
        ) from None


def told(error: BaseException) -> str:
    """Type and text of an exception on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _line(error: BaseException, path: str) -> str:
    """The last line of the file that the exception came through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f" in line {lines[-1]}" if lines else ""


def _remedy(error: BaseException, plugin: SelectedPlugin) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        if plugin.path is not None and missing_sibling(plugin.path, error.name.partition(".")[0]):
            return ". It lies beside the file, but a one-file plugin is one file: make it a package"
        return f". Install what provides {error.name.partition('.')[0]!r}, or choose another plugin"
    return ""
