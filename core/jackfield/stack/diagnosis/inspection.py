"""Options of plugins, checked and described in a child process: for commands that must import no plugin themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from jackfield.config.errors import ConfigurationError
from jackfield.stack.child import ChildFailure, call_in_child
from jackfield.stack.discovery.catalogue import PluginRow
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.loading.imports import import_object
from jackfield.stack.loading.options import validated_options
from jackfield.stack.resolved import ResolvedStack, SelectedPlugin
from jackfield.stack.selection.checks import manifest_of
from jackfield.stack.selection.choice import as_selected


def check_options_in_child(stack: ResolvedStack) -> None:
    """Validate the options, without loading the plugins here. Raises ConfigurationError."""
    # Also those of plugins to which none were given: one may be required.
    checked = [plugin for plugin in stack.plugins if plugin.options or plugin.manifest.options]
    if checked:
        _ask("check", checked)


def describe_models_in_child(rows: Sequence[PluginRow]) -> list[tuple[dict[str, Any], str]]:
    """(JSON schema of the options model, "") of each healthy row, or ({}, what is wrong with it); {} if it has no options.

    One child for all of them, and none if no row has options. Raises ConfigurationError if it cannot be asked.
    """
    asked = [as_selected(row, "its options are asked for") for row in rows if manifest_of(row).options is not None]
    answers = iter(_ask("schemas", asked) if asked else ())
    described = []
    for row in rows:
        schema, problem = ({}, "") if manifest_of(row).options is None else next(answers)
        described.append((schema, problem))
    return described


def _ask(task: str, plugins: list[SelectedPlugin]) -> Any:
    try:
        return call_in_child(__name__, {"task": task, "plugins": msgspec.to_builtins(plugins)})
    except ChildFailure as error:
        if len(plugins) > 1:
            # One of them ended the process of all: each by itself tells which.
            for plugin in plugins:
                _ask(task, [plugin])
        whose = plugins[0].described if len(plugins) == 1 else ", ".join(plugin.described for plugin in plugins)
        raise ConfigurationError(f"{whose}: the options could not be looked at: {error}") from error


def answer(order: dict[str, Any]) -> Any:
    """The child's part, see `child.py`."""
    plugins = msgspec.convert(order["plugins"], list[SelectedPlugin])
    if order["task"] == "check":
        for plugin in plugins:
            validated_options(plugin)
        return None
    return [_schema_or_problem(plugin) for plugin in plugins]


def _schema_or_problem(plugin: SelectedPlugin) -> tuple[dict[str, Any], str]:
    assert plugin.manifest.options is not None
    try:
        return schema_of(_model(plugin, plugin.manifest.options)), ""
    except ConfigurationError as error:
        return {}, str(error)


def _model(plugin: SelectedPlugin, reference: str) -> type[BaseModel]:
    model = import_object(reference, plugin)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise PluginLoadError(f"{plugin.described} names {reference}, which is no pydantic model")
    return model


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The model's JSON schema, with what its default factories give, which pydantic leaves out."""
    schema = model.model_json_schema()
    for name, field in model.model_fields.items():
        entry = schema.get("properties", {}).get(field.alias or name)
        if entry is None or "default" in entry or field.default_factory is None:
            continue
        if not field.default_factory_takes_validated_data:
            entry["default"] = to_jsonable_python(field.get_default(call_default_factory=True), fallback=str)
    return schema


def described_fields(model: type[BaseModel]) -> list[dict[str, Any]]:
    """[{name, type, default, required, description}] of a model's fields, from its JSON schema."""
    schema = schema_of(model)
    required = set(schema.get("required", ()))
    return [
        {
            "name": name,
            "type": _type(entry, schema),
            "default": entry.get("default"),
            "required": name in required,
            "description": entry.get("description", ""),
        }
        for name, entry in schema.get("properties", {}).items()
    ]


def _type(entry: dict[str, Any], schema: dict[str, Any]) -> str:
    """A JSON schema type on one line."""
    if "$ref" in entry:
        entry = schema["$defs"][entry["$ref"].rpartition("/")[2]]
    if "const" in entry:
        return json.dumps(entry["const"], ensure_ascii=False)
    if "enum" in entry:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in entry["enum"])
    arms = entry.get("anyOf") or entry.get("oneOf") or entry.get("allOf")
    if arms:
        return " | ".join(_type(arm, schema) for arm in arms)
    if entry.get("type") == "array" and isinstance(entry.get("items"), dict):
        items = _type(entry["items"], schema)
        return f"array of ({items})" if " | " in items else f"array of {items}"
    return str(entry.get("type", "any"))
