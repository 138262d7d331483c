"""Brings the sources together: defaults < stack file < environment < command line (or keyword arguments).

The result is one validated `ServerArgs` and, for every field, where its value came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from jackfield.config.environment import STACK_VARIABLE, read_environment
from jackfield.config.errors import ConfigurationError, did_you_mean, refuse
from jackfield.config.fields import Shape, facts_of
from jackfield.config.layer import DEFAULT, Layer, overlay
from jackfield.config.names import options_key
from jackfield.config.problems import configuration_error, where
from jackfield.config.server_args import ServerArgs
from jackfield.config.stack_file import read_stack_file
from jackfield.config.text_values import option_assignment, parse_text
from jackfield.hookspecs.kinds import KINDS

Provenance = dict[str, str]
"""Field -> "default", "stack file PATH", "environment JACKFIELD_X", "--flag" or "argument NAME"; for single options
also "options.<kind>.<instance>.<field>" -> source. What `option_folders` reads stands in it too."""

_FOLDER = "folder of options."

_SEVERAL = {kind.field: kind.name for kind in KINDS.values() if not kind.exclusive}


@dataclass(frozen=True, kw_only=True)
class OptionFlag:
    """One `--schedule-policy.lpm.max-queue 64`, already of the option's type. key: "kind.instance"; source: the flag."""

    key: str
    path: tuple[str, ...]
    value: Any
    source: str


def load_server_args(
    argv_values: Mapping[str, Any],
    environ: Mapping[str, str],
    stack_file: str | Path | None,
    option_flags: Sequence[OptionFlag] = (),
) -> tuple[ServerArgs, Provenance]:
    """All sources together.

    argv_values   field -> what the command line gave: text, a bool for a switch, a list of texts for what may be
                  repeated ("options": a list of "kind.instance.field=value")
    environ       the environment, usually `os.environ`
    stack_file    what --stack named, FILE or FILE#NAME; None: JACKFIELD_STACK decides
    option_flags  single options that the command line gave by flags of their own

    Raises ConfigurationError.
    """
    return _combine(read_command_line(argv_values, option_flags), environ, stack_file)


def server_args_from_kwargs(kwargs: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[ServerArgs, Provenance]:
    """The same for keyword arguments, as `Engine(...)` takes them: values of the fields' own types, and `stack` for
    the stack file. Raises ConfigurationError."""
    fields = facts_of(ServerArgs)
    unknown = [name for name in kwargs if name not in fields and name != "stack"]
    if unknown:
        raise refuse([f"there is no argument {name!r}{did_you_mean(name, [*fields, 'stack'])}" for name in unknown])
    layer, problems = Layer(), []
    for name, value in kwargs.items():
        if name == "stack":
            continue
        source = f"argument {name}"
        try:
            if fields[name].shape is Shape.OPTIONS:
                layer.set_options(value, source)
                continue
            if name in _SEVERAL:
                value = layer.fold_use_options(_SEVERAL[name], value, source)
            layer.set(name, value, source)
        except ValueError as error:
            problems.append(f"{source}: {error}")
    if problems:
        raise refuse(problems)
    return _combine(layer, environ, kwargs.get("stack"))


def read_command_line(argv_values: Mapping[str, Any], option_flags: Sequence[OptionFlag] = ()) -> Layer:
    """Raises ConfigurationError naming every flag whose value cannot be read."""
    layer, problems = Layer(), []
    assigned: set[tuple[str, ...]] = set()
    for name, given in argv_values.items():
        facts = facts_of(ServerArgs)[name]
        try:
            if facts.shape is Shape.OPTIONS:
                for text in given:
                    key, path, value = option_assignment(text)
                    layer.set_option(key, path, value, facts.flag)
                    assigned.add((options_key(key), *path))
                continue
            if facts.shape in (Shape.USES, Shape.NAMES, Shape.NUMBERS, Shape.PATHS):
                value = tuple(item for text in given for item in parse_text(facts, text))
            else:
                value = given if isinstance(given, bool) else parse_text(facts, given)
            if name in _SEVERAL:
                value = layer.fold_use_options(_SEVERAL[name], value, facts.flag)
            layer.set(name, value, facts.flag)
        except ValueError as error:
            problems.append(f"{facts.flag}: {error}")
    for flag in option_flags:
        # Which of the two came last on the line is not known here.
        if (flag.key, *flag.path) in assigned:
            problems.append(f"{flag.source}: the same option is given by --option as well; keep one")
            continue
        try:
            layer.set_option(flag.key, flag.path, flag.value, flag.source)
        except ValueError as error:
            problems.append(f"{flag.source}: {error}")
    if problems:
        raise refuse(problems)
    return layer


def _combine(above: Layer, environ: Mapping[str, str], stack_file: str | Path | None) -> tuple[ServerArgs, Provenance]:
    environment = read_environment(environ)
    if stack_file is None:
        stack_file = environ.get(STACK_VARIABLE)
    if stack_file == "":
        raise ConfigurationError(f"the stack file's name is empty; leave --stack or {STACK_VARIABLE} out, or name one")
    below, folder = (Layer(), None) if stack_file is None else read_stack_file(stack_file)
    layer = overlay(overlay(below, environment), above)
    provenance = dict.fromkeys(facts_of(ServerArgs), DEFAULT) | layer.provenance
    if folder is not None:
        given_later = {path for later in (environment, above) for path in _option_paths(later)}
        for key, path in _option_paths(below):
            if not any(key == other and _one_holds_the_other(path, theirs) for other, theirs in given_later):
                provenance[f"{_FOLDER}{key}.{'.'.join(path)}"] = str(folder)
    try:
        args = ServerArgs.model_validate(layer.values)
    except ValidationError as error:
        raise configuration_error(error, provenance) from None
    _check_files(args, provenance)
    return args, provenance


def option_folders(provenance: Mapping[str, str], key: str) -> dict[str, str]:
    """Options of one instance that a stack file gave -> the folder from which a relative path among them counts.

    A deeper option's name is dotted.
    """
    prefix = f"{_FOLDER}{key}."
    return {name.removeprefix(prefix): folder for name, folder in provenance.items() if name.startswith(prefix)}


def option_sources(provenance: Mapping[str, str], key: str) -> dict[str, str]:
    """Options of one instance, by the first of their names -> who gave them."""
    prefix = f"options.{key}."
    return {name.removeprefix(prefix): source for name, source in provenance.items() if name.startswith(prefix)}


def _option_paths(layer: Layer) -> Iterator[tuple[str, tuple[str, ...]]]:
    """("kind.instance", path) of every option that a source gave; what is no table is one option."""

    def leaves(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for name, value in table.items():
            if isinstance(value, Mapping):
                yield from leaves(value, (*path, name))
            else:
                yield (*path, name)

    for key, fields in layer.values.get("options", {}).items():
        for path in leaves(fields, ()):
            yield key, path


def _one_holds_the_other(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return all(mine == theirs for mine, theirs in zip(one, other, strict=False))


def _check_files(args: ServerArgs, provenance: Mapping[str, str]) -> None:
    if args.chat_template is not None and not args.chat_template.is_file():
        raise ConfigurationError(
            f"{where('chat_template', provenance)}: there is no file {str(args.chat_template)!r}; "
            "give the path of a Jinja template (built-in template names are not known here)"
        )
    if args.revision is not None and args.model_path is not None and Path(args.model_path).exists():
        raise ConfigurationError(
            f"{where('revision', provenance)}: a local model has no revisions, and {args.model_path!r} is a local path"
        )
