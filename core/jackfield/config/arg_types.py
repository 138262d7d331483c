"""The types of `ServerArgs`' fields: which values are taken, in which spellings. Knows no field."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Strict, StringConstraints

from jackfield.config.names import AUTO, PluginUse, as_plugin_use, normalise_name, options_key
from jackfield.config.text_values import numbers


def _json_object(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"not valid JSON: {error}") from None


def path_text(value: object) -> object:
    """A path as text, with `~` for the home directory read."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    return os.path.expanduser(text) if isinstance(text, str) and text.startswith("~") else text


def _dtype_word(value: object) -> object:
    # SGLang's command lines use both spellings.
    return {"half": "float16", "float": "float32"}.get(value, value) if isinstance(value, str) else value


def _kv_dtype_word(value: object) -> object:
    return (
        {"half": "float16", "float": "float32", "bf16": "bfloat16"}.get(value, value)
        if isinstance(value, str)
        else value
    )


def loader_name(value: object) -> object:
    """The name of a loader plugin in its one spelling; None is "auto"."""
    return AUTO if value is None else normalise_name(value)


def quantization_name(value: object) -> object:
    """The name in its one spelling, small letters and underscores; None is "auto"."""
    if value is None:
        return AUTO
    return value.strip().lower().replace("-", "_") if isinstance(value, str) else value


def several(value: object) -> object:
    """One name, path or table stands for a list of one."""
    return (value,) if isinstance(value, str | dict | PluginUse | os.PathLike) else value


def _instances(uses: tuple[PluginUse, ...]) -> tuple[PluginUse, ...]:
    names = [use.instance for use in uses]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        use = next(use for use in uses if use.instance == twice[0])
        again = f'{{ plugin = "{use.plugin}", as = "another-name" }}'
        raise ValueError(f"the instance {twice[0]!r} is there twice: give one of them another name, as {again} does")
    return uses


def canonical_options(value: object) -> object:
    """ "kind.instance" -> raw options, its keys in their one spelling. Raises ValueError for two spellings of one key."""
    if not isinstance(value, dict):
        return value
    canonical: dict[str, Any] = {}
    for key, fields in value.items():
        name = options_key(key)
        if name in canonical:
            raise ValueError(f"the options of {name!r} are given under two spellings")
        canonical[name] = fields
    return canonical


def whole_number(value: object) -> object:
    """Digits stand for a number, so that a list of numbers may come as text."""
    return int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value


def several_numbers(value: object) -> object:
    """One number stands for a list of one, text for the numbers that it lists, and None, SGLang's default, for none."""
    if value is None:
        return ()
    if isinstance(value, str):
        return numbers(value)
    return (value,) if isinstance(value, int | float) else value


def _chunk_size(value: int) -> int:
    if value < 1 and value != CHUNKING_OFF:
        raise ValueError(f"{value} is no chunk size: at least 1, or {CHUNKING_OFF} for prompts that are never cut")
    return value


def _fraction(value: float) -> float:
    if not 0 < value < 1:  # which NaN is not either
        raise ValueError(f"{value:g} is no share of the memory: above 0 and below 1, such as 0.85")
    return value


def _key(value: str) -> str:
    # The value itself must not get into the message.
    if not value:
        raise ValueError("an empty key would let everybody in; leave it out to have no key")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("a key consists of printable ASCII characters without spaces, as a header carries it")
    return value


def _origin(value: str) -> str:
    if value != "*" and not _ORIGIN.fullmatch(value):
        raise ValueError(
            f"{value[:80]!r} is no origin: scheme, host and port as a browser writes them, in small letters and without a path, "
            "such as https://chat.example or http://localhost:5173; or * for any"
        )
    return value


_WHOLE = re.compile(r"[+-]?[0-9]{1,100}")
_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")

Text = Annotated[str, StringConstraints(min_length=1)]
Origin = Annotated[str, AfterValidator(_origin)]
Key = Annotated[str, AfterValidator(_key)]
Positive = Annotated[int, Strict(), Field(ge=1)]
PositiveNumber = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
BatchSizes = Annotated[
    tuple[Annotated[int, Strict(), Field(ge=1), BeforeValidator(whole_number)], ...], BeforeValidator(several_numbers)
]
NotNegative = Annotated[int, Strict(), Field(ge=0)]
Fraction = Annotated[float, Strict(), AfterValidator(_fraction)]
CHUNKING_OFF = -1
ChunkSize = Annotated[int, Strict(), AfterValidator(_chunk_size)]
Seconds = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
Switch = Annotated[bool, Strict()]
Dtype = Annotated[Literal["auto", "float32", "float16", "bfloat16"], BeforeValidator(_dtype_word)]
KVCacheDtype = Annotated[
    Literal["auto", "float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"], BeforeValidator(_kv_dtype_word)
]
JsonObject = Annotated[dict[str, Any], BeforeValidator(_json_object)]
FilePath = Annotated[Path, BeforeValidator(path_text)]
LastingPath = Annotated[FilePath, AfterValidator(Path.absolute)]
"""A path that is read again while a replica runs, wherever the program may have gone meanwhile."""
Uses = Annotated[
    tuple[Annotated[PluginUse, BeforeValidator(as_plugin_use)], ...],
    BeforeValidator(several),
    AfterValidator(_instances),
]
