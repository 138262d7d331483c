"""Loading: imports the selected plugins of one process, checks their hooks and options, and makes their objects.

pluggy holds the modules and verifies them against the hook specs. A provider hook is never broadcast: the one selected
plugin's function is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType, ModuleType
from typing import Any

import pluggy
from pydantic import BaseModel

from jackfield.config.errors import ConfigurationError
from jackfield.hookspecs import SPECS, ModelEntry, ModelSourceError, UnsupportedModel
from jackfield.hookspecs.markers import PROJECT
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.loading.deprecation import check, hook_uses, method_uses, watch_fields
from jackfield.stack.loading.files import declared_kinds
from jackfield.stack.loading.hooks import the_hook
from jackfield.stack.loading.implementations import implementations, named_arguments
from jackfield.stack.loading.imports import import_plugin_module, told
from jackfield.stack.loading.options import validated_options
from jackfield.stack.resolved import ResolvedStack, SelectedPlugin

INLINE = "inline"
"""The role of a process that plays all of them."""

Maker = Callable[[Mapping[str, Any]], Any]
"""Takes the fields of the kind's context beyond those of `PluginContext`, gives the plugin's object."""


@dataclass(frozen=True, kw_only=True)
class LoadedPlugin:
    """One plugin in this process. hooks: hook name -> its function, those of its kind alone."""

    selected: SelectedPlugin
    module: ModuleType
    options: BaseModel | None
    hooks: Mapping[str, Callable[..., Any]]

    def make(self, fields: Mapping[str, Any]) -> Any:
        """Call the provider hook with its context. Raises PluginLoadError; an error of the caller is a TypeError."""
        selected = self.selected
        hook = the_hook(selected.kind)
        assert hook.context is not None
        assert hook.returns is not None
        given = {"context": hook.context(**self._common(), **fields)}
        function = self.hooks[hook.name]
        try:
            made = function(**named_arguments(function, given))
        except ConfigurationError:
            raise
        except (ModelSourceError, UnsupportedModel) as error:
            raise PluginLoadError(f"{selected.described}: {error}") from error
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise PluginLoadError(
                f"{selected.described} could not be made: {hook.name} raised {told(error)}"
            ) from error
        if made is None or not isinstance(made, hook.returns):
            raise PluginLoadError(
                f"{selected.described}: {hook.name} returned {type(made).__name__}, "
                f"not a {hook.returns.__module__}.{hook.returns.__qualname__}"
            )
        check(selected.described, method_uses(selected.kind, type(made)))
        return made

    def _common(self) -> dict[str, Any]:
        selected = self.selected
        return {
            "kind": selected.kind,
            "name": selected.name,
            "instance": selected.instance,
            "options": self.options,
        }


class LoadedStack:
    """The plugins of one process, ready to make their objects. Immutable."""

    def __init__(self, resolved: ResolvedStack, role: str, plugins: tuple[LoadedPlugin, ...]) -> None:
        self.resolved = resolved
        self.role = role
        self.plugins = plugins
        self._makers: dict[str, Maker] = {plugin.selected.key: plugin.make for plugin in plugins}

    def has(self, kind: str) -> bool:
        """Whether a plugin of this kind is loaded in this process."""
        return bool(self.of(kind))

    def of(self, kind: str) -> tuple[LoadedPlugin, ...]:
        """The loaded plugins of one kind, in stack order."""
        return tuple(plugin for plugin in self.plugins if plugin.selected.kind == kind)

    def plugin(self, kind: str, *, phase: str | None = None, instance: str | None = None) -> LoadedPlugin:
        """One loaded plugin. Raises LookupError if none or more than one answers to the description."""
        found = [
            plugin
            for plugin in self.of(kind)
            if (phase is None or phase in plugin.selected.phases)
            and (instance is None or instance == plugin.selected.instance)
        ]
        if len(found) != 1:
            raise LookupError(
                f"{len(found)} plugins of kind {kind!r} (phase {phase}, instance {instance}) in the process {self.role!r}"
            )
        return found[0]

    def make(self, kind: str, *, phase: str | None = None, instance: str | None = None, **fields: Any) -> Any:
        """Call the one plugin's hook with the kind's context: `fields` and the common ones, which are added.

        Raises PluginLoadError (the plugin failed or returned something else), LookupError, or TypeError (wrong fields).
        """
        return self.maker(kind, phase=phase, instance=instance)(fields)

    def maker(self, kind: str, *, phase: str | None = None, instance: str | None = None) -> Maker:
        """`make` for later. One attention plugin that serves both phases has one maker: equal for either phase."""
        return self._makers[self.plugin(kind, phase=phase, instance=instance).selected.key]

    def models(self) -> Mapping[str, ModelEntry]:
        """Architecture -> where its code is. Raises PluginLoadError if it differs from the manifest."""
        plugin = self.plugin("model")
        hook = the_hook("model")
        selected = plugin.selected
        entries = plugin.make({})
        if not all(isinstance(entry, ModelEntry) for entry in entries.values()):
            raise PluginLoadError(f"{selected.described}: {hook.name} must return a mapping of ModelEntry")
        difference = set(entries) ^ set(selected.manifest.architectures)
        if difference:
            raise PluginLoadError(
                f"{selected.described}: its manifest and {hook.name} disagree over {', '.join(sorted(difference))}"
            )
        return MappingProxyType({name: _within(selected, entry) for name, entry in entries.items()})


def _within(selected: SelectedPlugin, entry: ModelEntry) -> ModelEntry:
    """The entry with ":Class" of a one-file plugin written out: its module has no name that its author could know."""
    if selected.path is None:
        return entry
    shape, model = (f"{selected.module}{text}" if text.startswith(":") else text for text in (entry.shape, entry.model))
    return replace(entry, shape=shape, model=model)


def load_stack(resolved: ResolvedStack, role: str) -> LoadedStack:
    """Import and check what this process needs: all of the stack for role "inline", else by each plugin's processes.

    Raises ConfigurationError (options) or PluginLoadError (import, hooks) for the first plugin that does not stand up.
    """
    manager = pluggy.PluginManager(PROJECT)
    for specs in SPECS:
        manager.add_hookspecs(specs)
    watch_fields()
    plugins = []
    for selected in resolved.plugins:
        if role != INLINE and role not in selected.processes:
            continue
        module = import_plugin_module(selected.module, selected)
        hooks, problems = implementations(
            module, selected.kind, frozenset() if selected.path is None else declared_kinds(module)
        )
        if problems:
            raise PluginLoadError(
                f"{selected.described} breaks the contract ({selected.path or selected.module}): {'; '.join(problems)}"
            )
        check(selected.described, hook_uses(selected.kind, hooks))
        # Several names or instances may share one module; pluggy wants each object once.
        if not manager.is_registered(module):
            try:
                manager.register(module, name=selected.module)
            except pluggy.PluginValidationError as error:
                raise PluginLoadError(f"{selected.described} breaks the contract: {told(error)}") from error
        plugins.append(LoadedPlugin(selected=selected, module=module, options=validated_options(selected), hooks=hooks))
    return LoadedStack(resolved, role, tuple(plugins))
