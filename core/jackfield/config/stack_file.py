"""Reads a stack file: ServerArgs fields at top level, plugin choices under [stack], options under [options].

Under [stacks.NAME] the same shape again: a stack that has what stands at the top level, and its own laid over it. FILE#NAME
chooses it. Knows the file's shape and that relative paths in it are relative to it; ranges are the model's business.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from jackfield.config.errors import ConfigurationError, did_you_mean, nearest, refuse
from jackfield.config.fields import Shape, facts_of
from jackfield.config.layer import Layer, overlay
from jackfield.config.names import normalise_name
from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs.kinds import KINDS, Kind

SEPARATOR = "#"
"""Between the file and the name of one of its stacks. One word, so that a flag, a variable and an argument of Python are alike,
and no name is given without its file."""

SHARED = ", for all its stacks"
"""Behind the source of the one-file plugins that a file with named stacks gives at its top level."""

_TABLES = ("stack", "options")
_STACKS = "stacks"


def read_stack_file(text: str | Path) -> tuple[Layer, Path]:
    """The values of FILE or FILE#NAME, and the folder from which relative paths in it count.

    All stacks of the file are looked at, the chosen one or not. Raises ConfigurationError naming the file and everything that is
    wrong with its shape.
    """
    path, chosen = _split(text)
    source = f"stack file {path}"
    table = _load(path)
    stacks = table.pop(_STACKS, {})
    if not isinstance(stacks, dict) or not all(isinstance(stack, dict) for stack in stacks.values()):
        raise ConfigurationError(f"{source}: write [{_STACKS}.NAME], a table for each stack")
    folder = path.absolute().parent
    common, problems = _layer(table, folder, source)
    if stacks and "plugin" in common.values:
        common.provenance["plugin"] += SHARED
    named: dict[str, Layer] = {}
    for name, stack in stacks.items():
        named[name], wrong = _layer(stack, folder, f"{source}, stack {name!r}")
        problems += wrong
    if problems:
        raise refuse(problems)
    if chosen is None:
        if stacks and not table:
            raise ConfigurationError(
                f"{source}: it has only named stacks; choose one with {path}{SEPARATOR}NAME: {', '.join(stacks)}"
            )
        return common, folder
    if chosen not in named:
        meant = did_you_mean(chosen, named, noun="it has") if named else f"; it has none: write [{_STACKS}.{chosen}]"
        raise ConfigurationError(f"{source}: there is no stack {chosen!r} in it{meant}")
    stack = overlay(common, named[chosen])
    _drop_replaced(stack, common, named[chosen])
    return stack, folder


def _drop_replaced(stack: Layer, common: Layer, own: Layer) -> None:
    """A plugin of the common part that a named stack replaced goes with its options; those that it gives itself stay."""
    for kind in KINDS.values():
        if not any(field in own.values for field in kind.fields):
            continue
        kept = {name for field in kind.fields for name in _instances(stack.values.get(field))}
        for key in common.values.get("options", {}):
            instance = key.removeprefix(f"{kind.name}.")
            if instance != key and instance not in kept and key not in own.values.get("options", {}):
                del stack.values["options"][key]


def _instances(value: Any) -> list[str]:
    """The names under which a field's plugins run; what is malformed has none, and the validation tells it."""
    found = []
    for use in value if isinstance(value, list | tuple) else [value]:
        name = use.get("as") or use.get("plugin") if isinstance(use, Mapping) else use
        if isinstance(name, str):
            with suppress(ValueError):
                found.append(normalise_name(name))
    return found


def _split(text: str | Path) -> tuple[Path, str | None]:
    """The file and the stack's name. A file whose own name has the separator is that file."""
    path = Path(text).expanduser()
    file, separator, name = str(path).rpartition(SEPARATOR)
    if not separator or path.is_file():
        return path, None
    if not name or not file:
        raise ConfigurationError(f"stack file {path}: write FILE{SEPARATOR}NAME, or FILE alone")
    return Path(file), name


def _layer(table: Mapping[str, Any], folder: Path, source: str) -> tuple[Layer, list[str]]:
    """One table of a stack's shape, and what is wrong with it."""
    layer, problems = Layer(), []
    fields = facts_of(ServerArgs)
    for name, value in table.items():
        if name in fields and name not in _TABLES:
            layer.set(name, value, source)
            if "" in (value if isinstance(value, list) else [value]) and fields[name].shape in (
                Shape.PATH,
                Shape.PATHS,
            ):
                problems.append(f"{source}: {name}: a path is empty; name a file, or leave it out")
        elif name not in _TABLES:
            problems.append(f"{source}: there is no setting {name!r}{_meant(name, fields)}")
    try:
        layer.set_options(table.get("options", {}), source)
    except ValueError as error:
        problems.append(f"{source}: {error}")
    problems += [f"{source}: {problem}" for problem in _stack(table.get("stack", {}), layer, source)]
    for kind in KINDS.values():
        if not kind.exclusive and kind.field in layer.values:
            try:
                layer.values[kind.field] = layer.fold_use_options(kind.name, layer.values[kind.field], source)
            except ValueError as error:
                problems.append(f"{source}: {error}")
    _anchor_paths(layer.values, folder)
    return layer, problems


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
    except FileNotFoundError:
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        tomls = [name for name in beside if name.endswith(".toml") and name != "pyproject.toml"]
        hint = did_you_mean(path.name, tomls, noun="stack files there") if tomls else ""
        raise ConfigurationError(f"stack file {path}: there is no such file{hint}") from None
    except OSError as error:
        raise ConfigurationError(f"stack file {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigurationError(f"stack file {path}: is not UTF-8 text, so it is not TOML") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"stack file {path}: is not valid TOML: {error}") from error
    except RecursionError:
        raise ConfigurationError(f"stack file {path}: is nested too deeply") from None


def _meant(name: str, fields: Mapping[str, Any]) -> str:
    if name == _STACKS:
        return f": a stack holds no others; write [{_STACKS}.NAME] at the top level of the file"
    if name in KINDS:
        return f"; under [stack] it would be a plugin's name, at top level it is {KINDS[name].field!r}"
    words = [*(field for field in fields if field != "options"), *_TABLES, _STACKS]
    return did_you_mean(name, words) or "; `jackfield serve --help` lists all, with dashes for underscores"


def _stack(table: Any, layer: Layer, source: str) -> list[str]:
    """Plugin choices, by the kind's name or by its field's. Returns problems."""
    if not isinstance(table, dict):
        return [f"[stack] must be a table, not {type(table).__name__}"]
    words = {word: kind for kind in KINDS.values() for word in (kind.name, *kind.fields)}
    problems = []
    for word, value in table.items():
        kind = words.get(word)
        if kind is None:
            if word in facts_of(ServerArgs):
                # TOML gives a table all that stands below its heading.
                problems.append(
                    f"[stack] has no kind {word!r}: it is a setting, and stands above [stack] and all other tables"
                )
                continue
            meant = did_you_mean(word, words) if nearest(word, words) else f"; kinds: {', '.join(KINDS)}"
            problems.append(f"[stack] has no kind {word!r}{meant}")
            continue
        if kind.exclusive and not kind.parts and not isinstance(value, str):
            problems.append(_one_name(word, kind, value))
            continue
        choices = {word if word in kind.fields else kind.field: value}
        if kind.parts and word not in kind.parts.values() and not (isinstance(value, str) and kind.has_common_field):
            if not isinstance(value, dict) or not value or not kind.parts.keys() >= value.keys():
                table = ", ".join(f"{part} = ..." for part in kind.parts)
                a_name = "a name or " if kind.has_common_field else ""
                problems.append(f"[stack] {word} takes {a_name}{{ {table} }}, not {value!r}")
                continue
            choices = {kind.parts[part]: plugin for part, plugin in value.items()}
        for field, choice in choices.items():
            if field in layer.values:
                problems.append(f"{field!r} is given twice; keep [stack] {word} or the other one")
            else:
                layer.set(field, choice, source)
    return problems


def _one_name(word: str, kind: Kind, value: Any) -> str:
    """What is wrong with something else than a name where one plugin serves."""
    problem = f"[stack] {word} takes the name of one plugin, not {value!r}"
    if isinstance(value, Mapping) and isinstance(value.get("plugin"), str):
        return f'{problem}; its options stand in [options."{kind.name}.{value["plugin"]}"]'
    return problem


def _anchored(folder: Path, value: str) -> str:
    return os.path.normpath(folder / os.path.expanduser(value))


def _anchor_paths(values: dict[str, Any], folder: Path) -> None:
    for name, facts in facts_of(ServerArgs).items():
        value = values.get(name)
        if facts.shape is Shape.PATH and isinstance(value, str) and value:
            values[name] = _anchored(folder, value)
        elif facts.shape is Shape.PATHS and isinstance(value, str | list):
            several = [value] if isinstance(value, str) else value
            values[name] = [_anchored(folder, item) if isinstance(item, str) and item else item for item in several]
    model = values.get("model_path")
    if isinstance(model, str) and model and not model.startswith("~"):
        # "org/name" is a hub id unless such a path exists here: the rule for a path typed at a shell, from this folder.
        local = folder / model
        if model.startswith((".", os.sep)) or model.endswith(".gguf") or local.exists():
            values["model_path"] = os.path.normpath(local)
