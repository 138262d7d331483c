"""Options of one plugin instance: raw values from the configuration against the pydantic model that the manifest names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.config.problems import plain_words, quotes_hint
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.loading.imports import import_object
from jackfield.stack.resolved import SelectedPlugin


def validated_options(plugin: SelectedPlugin) -> BaseModel | None:
    """The options model of this instance, or None if its manifest names none.

    Imports the model's module, nothing else. Raises ConfigurationError with every problem: unknown fields with the
    nearest ones, missing fields, wrong types. Types are strict: text is no number.
    """
    reference = plugin.manifest.options
    if reference is None:
        if plugin.options:
            raise ConfigurationError(
                f"{plugin.described} has no options, but {_where(plugin, next(iter(plugin.options)))} is set: remove it"
            )
        return None
    model = import_object(reference, plugin)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise ConfigurationError(f"{plugin.described} names {reference} for its options, which is no pydantic model")
    problems = [
        f"{_where(plugin, path)}: unknown option{did_you_mean(path[-1], allowed, noun='allowed')}"
        for path, allowed in unknown_fields(model, plugin.options)
    ]
    try:
        # As JSON, because TOML has JSON's types: strict there still lets an array be a tuple and a text an enum or path.
        options = anchored(model, plugin.options, plugin.option_folders)
        validated = model.model_validate_json(json.dumps(options, default=str), strict=True)
    except ValidationError as error:
        problems.extend(_problems(plugin, error))
    else:
        if not problems:
            return validated
    raise ConfigurationError(f"{plugin.described} refuses its options: " + "; ".join(problems))


def anchored(model: type[BaseModel], options: Mapping[str, Any], folders: Mapping[str, str]) -> dict[str, Any]:
    """The options with each relative path counted from its folder. folders: dotted option -> folder, for those that have one.

    What a path is the model's annotations say. The raw options stay as they were written, so that the stack hash is of no
    machine's folders.
    """

    def walk(model: type[BaseModel], values: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        fields = model.model_fields | {field.alias: field for field in model.model_fields.values() if field.alias}
        done = dict(values)
        for name, value in values.items():
            annotation = fields[name].annotation if name in fields else None
            folder = folders.get(".".join((*path, name)))
            if isinstance(value, Mapping):
                if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                    done[name] = walk(annotation, value, (*path, name))
            elif folder is not None and _holds_path(annotation):
                items = value if isinstance(value, list) else [value]
                moved = [_from(folder, item) if isinstance(item, str) else item for item in items]
                done[name] = moved if isinstance(value, list) else moved[0]
        return done

    return walk(model, options, ()) if folders else dict(options)


def _holds_path(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, PurePath):
        return True
    return any(_holds_path(inner) for inner in get_args(annotation))


def _from(folder: str, path: str) -> str:
    return path if path.startswith("~") else os.path.normpath(os.path.join(folder, path))


def _where(plugin: SelectedPlugin, path: str | tuple[str, ...]) -> str:
    parts = (path,) if isinstance(path, str) else path
    source = plugin.option_sources.get(parts[0])
    origin = "" if source is None else f" (from {source})"
    return f'options."{plugin.key}".{".".join(parts)}{origin}'


def _to_give(plugin: SelectedPlugin, path: tuple[str, ...]) -> str:
    """Where an option that is not given can be."""
    flag = ".".join((KINDS[plugin.kind].flag_of(plugin.manifest.features), plugin.instance, *path)).replace("_", "-")
    return f'in [options."{plugin.key}"] or with {flag}'


def unknown_fields(
    model: type[BaseModel], values: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Fields that the model does not have, at any depth; checked here because a model may be set to ignore them."""
    if model.model_config.get("extra") == "allow":
        return
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    if model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name"):
        fields |= model.model_fields
    for key, value in values.items():
        if key not in fields:
            yield (*path, key), list(fields)
            continue
        nested = fields[key].annotation
        if isinstance(nested, type) and issubclass(nested, BaseModel) and isinstance(value, Mapping):
            yield from unknown_fields(nested, value, (*path, key))


def _problems(plugin: SelectedPlugin, error: ValidationError) -> Iterator[str]:
    for detail in error.errors(include_url=False):
        if detail["type"] == "extra_forbidden":
            continue  # `unknown_fields` says it better
        path = tuple(str(part) for part in detail["loc"]) or ("*",)
        if detail["type"] == "missing":
            yield f"{_where(plugin, path)}: must be given, {_to_give(plugin, path)}"
            continue
        yield f"{_where(plugin, path)}: {plain_words(detail)}, not {detail['input']!r}{quotes_hint(detail)}"
