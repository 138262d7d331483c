"""What a ServerArgs field looks like from outside: its flag, its environment variable, its group, its kind of value.

Derived from the fields alone, so that flags, environment, help and the generated reference cannot differ. Knows no
field by name.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from jackfield.config.names import PluginUse

ENVIRONMENT_PREFIX = "JACKFIELD_"


@dataclass(frozen=True, slots=True)
class Option:
    """Stands in a field's annotation.

    group     heading in --help and in the option reference
    metavar   placeholder for the value
    aliases   further flags that mean the same (SGLang's short forms)
    unset     the word that stands for None, in --help and as a value
    """

    group: str
    metavar: str | None = None
    aliases: tuple[str, ...] = ()
    unset: str = ""


class Shape(enum.Enum):
    """How a field's value is written as text."""

    SWITCH = "--x / --no-x"
    INTEGER = "a whole number"
    NUMBER = "a number"
    CHOICE = "one of a few words"
    TEXT = "text"
    PATH = "a path"
    JSON = "a JSON object"
    NAMES = "names, repeated or separated by commas"
    NUMBERS = "whole numbers, repeated or separated by commas or spaces"
    PATHS = "paths, repeated"
    USES = "plugin names or TOML tables"
    OPTIONS = "options of plugin instances"


@dataclass(frozen=True, kw_only=True)
class FieldFacts:
    """One configuration field, for builders of flags, of help and of reference pages.

    choices    the allowed words, empty unless `shape` is CHOICE
    optional   True if None is a value
    unset      the word for None, "" if there is none of its own
    """

    name: str
    flag: str
    aliases: tuple[str, ...]
    variable: str
    group: str
    metavar: str
    shape: Shape
    choices: tuple[str, ...]
    optional: bool
    unset: str
    default: Any
    description: str

    @property
    def default_text(self) -> str:
        """The default as a reader of --help wants to see it; "" if there is nothing to say."""
        if self.default is None or self.default == () or self.default == {}:
            return self.unset
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        if isinstance(self.default, tuple):
            return ",".join(item.plugin if isinstance(item, PluginUse) else str(item) for item in self.default)
        return str(self.default)


@cache
def facts_of(model: type[BaseModel]) -> Mapping[str, FieldFacts]:
    """Field name -> facts, in the order of the class. Raises TypeError for a field that cannot be offered."""
    return types.MappingProxyType({name: _facts(name, info) for name, info in model.model_fields.items()})


def _facts(name: str, info: Any) -> FieldFacts:
    option = next((item for item in info.metadata if isinstance(item, Option)), None)
    if option is None or not info.description:
        raise TypeError(f"the field {name!r} needs an Option and a description")
    bare, optional = _strip(info.annotation)
    shape, choices = _shape(name, bare)
    default = info.default_factory() if info.default is PydanticUndefined else info.default
    # Options are written one by one: --option kind.instance.field=value.
    word = "option" if shape is Shape.OPTIONS else name.replace("_", "-")
    return FieldFacts(
        name=name,
        flag="--" + word,
        aliases=option.aliases,
        variable=ENVIRONMENT_PREFIX + name.upper(),
        group=option.group,
        metavar=option.metavar or ("{" + ",".join(choices) + "}" if choices else word.upper()),
        shape=shape,
        choices=choices,
        optional=optional,
        unset=option.unset,
        default=default,
        description=info.description,
    )


def _strip(annotation: Any) -> tuple[Any, bool]:
    """The annotation without Annotated and None, and whether None was there."""
    optional = False
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, types.UnionType):
            rest = [arm for arm in get_args(annotation) if arm is not type(None)]
            if len(rest) != 1:
                return annotation, optional
            optional, annotation = True, rest[0]
        else:
            return annotation, optional


def _shape(name: str, bare: Any) -> tuple[Shape, tuple[str, ...]]:
    if get_origin(bare) is Literal:
        return Shape.CHOICE, tuple(get_args(bare))
    simple = {bool: Shape.SWITCH, int: Shape.INTEGER, float: Shape.NUMBER, str: Shape.TEXT, Path: Shape.PATH}
    if bare in simple:
        return simple[bare], ()
    if get_origin(bare) is tuple:
        item = _strip(get_args(bare)[0])[0]
        if item is PluginUse:
            return Shape.USES, ()
        if item is str:
            return Shape.NAMES, ()
        if item is int:
            return Shape.NUMBERS, ()
        if item is Path:
            return Shape.PATHS, ()
    if get_origin(bare) is dict:
        value = get_args(bare)[1]
        return (Shape.OPTIONS if get_origin(value) is dict else Shape.JSON), ()
    raise TypeError(f"the field {name!r} has a type that no flag can carry: {bare!r}")
