"""Values as they are typed on a command line or set in the environment, turned into what a field holds.

Knows shapes of values, not single fields; ranges and cross-checks are the model's business.
"""

from __future__ import annotations

import os
import re
import tomllib
from typing import Any

from jackfield.config.errors import did_you_mean
from jackfield.config.fields import FieldFacts, Shape

NONE = "none"
"""Sets an optional number or path back to "not given", or a list of plugins to empty, over an earlier source."""

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
_PERCENT = re.compile(r"\d+(\.\d+)?%")


def parse_text(facts: FieldFacts, text: str) -> Any:
    """The value of one field. Raises ValueError with what would be valid."""
    if facts.optional and text == NONE and facts.shape is not Shape.TEXT:
        return None
    match facts.shape:
        case Shape.SWITCH:
            return _switch(text)
        case Shape.INTEGER:
            return _integer(text)
        case Shape.NUMBER:
            return _number(text)
        case Shape.NAMES:
            return () if text == NONE else tuple(part.strip() for part in text.split(","))
        case Shape.NUMBERS:
            return () if text == NONE else numbers(text)
        case Shape.PATHS:
            # As PATH has them; a comma may stand in a file's name.
            return () if text == NONE else _paths(text)
        case Shape.USES:
            return _uses(text)
        case Shape.OPTIONS:
            return _table(text)
        case Shape.CHOICE | Shape.TEXT | Shape.PATH | Shape.JSON:
            return text


def numbers(text: str) -> tuple[str, ...]:
    """The words of a list of numbers, with commas or spaces between them. A comma at its end is one that a shell cut off."""
    return tuple(re.split(r"\s*,\s*|\s+", text.strip().removesuffix(",")))


def toml_value(text: str) -> Any:
    """`text` as a TOML value. Raises ValueError if it is none."""
    if "\n" in text or "\r" in text:
        raise ValueError("a line break in a value")
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def option_assignment(text: str) -> tuple[str, list[str], Any]:
    """`kind.instance.field=value` -> ("kind.instance", path of the field, value).

    The value is read as TOML, so that numbers, truth values, lists and tables need no further quoting; what is not
    TOML is text. A field may lie deeper: `kind.instance.table.field=value`. Raises ValueError.
    """
    target, equals, value = text.partition("=")
    parts = [part.strip() for part in target.split(".")]
    if not equals or len(parts) < 3 or not all(parts):
        raise ValueError(f"{text!r} is not of the form kind.instance.field=value, such as attention.torch.block=64")
    try:
        parsed = toml_value(value)
    except ValueError:
        parsed = value
    return f"{parts[0]}.{parts[1]}", parts[2:], parsed


def _switch(text: str) -> bool:
    word = text.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"{text!r} is neither true nor false{did_you_mean(text, (*_TRUE, *_FALSE))}")


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        share = f"; for a share write {float(text[:-1]) / 100:g}" if _PERCENT.fullmatch(text) else ""
        raise ValueError(f"{text!r} is not a number{share}") from None


def _uses(text: str) -> tuple[Any, ...]:
    """Names separated by commas, or a TOML table, or a TOML list of both."""
    if text == NONE:
        return ()
    if text.lstrip().startswith(("{", "[")):
        try:
            value = toml_value(text)
        except ValueError as error:
            raise ValueError(f"{text!r} is not a TOML table or list: {error}") from None
        return tuple(value) if isinstance(value, list) else (value,)
    return tuple(part.strip() for part in text.split(","))


def _paths(text: str) -> tuple[str, ...]:
    parts = tuple(text.split(os.pathsep))
    if not all(parts):
        raise ValueError(f"{text!r} holds an empty path; write paths with {os.pathsep!r} between them, or {NONE!r}")
    return parts


def _table(text: str) -> Any:
    try:
        return toml_value(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not a TOML table such as {{ 'attention.torch' = {{ block = 64 }} }}: {error}"
        ) from None
