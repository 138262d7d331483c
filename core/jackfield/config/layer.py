"""One source's say: values by field, and where each came from; and how a later source is laid over an earlier one.

Knows which fields undo which; not how a source is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.config.names import PluginUse, options_key

DEFAULT = "default"

_PHASES = ("prefill_attention_backend", "decode_attention_backend")


@dataclass(kw_only=True)
class Layer:
    """Values that one or more sources gave.

    values       field -> value, not yet validated
    provenance   field -> source, in words; single options stand under "options.<kind>.<instance>.<field>"
    """

    values: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)

    def set(self, name: str, value: Any, source: str) -> None:
        self.values[name] = value
        self.provenance[name] = source

    def set_option(self, key: str, path: Iterable[str], value: Any, source: str) -> None:
        """One option of one instance. Raises ValueError for a malformed key or a path through something not a table."""
        key, steps = options_key(key), list(path)
        options = self.values.setdefault("options", {})
        table = options.setdefault(key, {})
        for depth, step in enumerate(steps[:-1]):
            table = table.setdefault(step, {})
            if not isinstance(table, dict):
                raise ValueError(f"{'.'.join([key, *steps[: depth + 1]])} is a value and a table at the same time")
        table[steps[-1]] = value
        self.provenance["options"] = source
        self.provenance[f"options.{key}.{steps[0]}"] = source

    def set_options(self, options: Any, source: str) -> None:
        """A whole table of options. Raises ValueError."""
        if not isinstance(options, Mapping):
            raise ValueError(f"options must be a table of tables, not {type(options).__name__}")
        for key, fields in options.items():
            canonical = _options_table(key, fields)
            for name, value in fields.items():
                self.set_option(canonical, [name], value, source)

    def fold_use_options(self, kind: str, uses: Any, source: str) -> Any:
        """Options written in a use of a plugin move to `options`, where a later source can override them one by one.

        Returns the uses without them. What is malformed stays as it is, for the validation to name.
        """
        if isinstance(uses, str | Mapping | PluginUse):
            uses = (uses,)
        if not isinstance(uses, list | tuple):
            return uses
        instances = [use.get("as") or use.get("plugin") for use in uses if isinstance(use, dict)]
        if any(instances.count(instance) > 1 for instance in instances):
            return uses
        return tuple(self._fold(kind, use, source) for use in uses)

    def _fold(self, kind: str, use: Any, source: str) -> Any:
        if isinstance(use, PluginUse):
            use = use.model_dump(by_alias=True)
        if not isinstance(use, dict) or not isinstance(use.get("options"), dict):
            return use
        instance = use.get("as") or use.get("plugin")
        if not isinstance(instance, str):
            return use
        key = options_key(f"{kind}.{instance}")
        for name, value in use["options"].items():
            if name in self.values.get("options", {}).get(key, {}):
                raise ValueError(
                    f"the option {name!r} of {key} is given twice: in the list of {kind} and under options"
                )
            self.set_option(key, [name], value, source)
        return {name: value for name, value in use.items() if name != "options"}


def overlay(below: Layer, above: Layer) -> Layer:
    """`above` laid over `below`. Options are merged field by field; all other fields are replaced.

    A later source's plugin for both attention phases undoes an earlier one's plugin for one phase, and plugins for
    both phases undo an earlier plugin for both: the earlier choice would otherwise outlive its override, or stay
    without effect.
    """
    values, provenance = dict(below.values), dict(below.provenance)
    if "attention_backend" in above.values:
        for name in _PHASES:
            values.pop(name, None)
            provenance.pop(name, None)
    if all(above.values.get(name) for name in _PHASES):
        values.pop("attention_backend", None)
        provenance.pop("attention_backend", None)
    options = _merge(values.get("options", {}), above.values.get("options", {}))
    values.update(above.values)
    if options:
        values["options"] = options
    provenance.update(above.provenance)
    return Layer(values=values, provenance=provenance)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _options_table(key: Any, fields: Any) -> str:
    if not isinstance(fields, Mapping):
        raise ValueError(f"the options of {key!r} must be a table, not {type(fields).__name__}")
    if isinstance(key, str) and "." not in key and fields and all(isinstance(v, Mapping) for v in fields.values()):
        inner = next(iter(fields))
        raise ValueError(f'write the key in quotes: [options."{key}.{inner}"], not [options.{key}.{inner}]')
    return options_key(key)


def merge_overrides(config: Mapping[str, Any], overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """`overrides` laid over a model's configuration: objects are merged, everything else is replaced."""
    return _merge(config, overrides or {})


def located(error: ValueError, source: str) -> ConfigurationError:
    """A source's own mistake, with where it is."""
    return ConfigurationError(f"{source}: {error}")
