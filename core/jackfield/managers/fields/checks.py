"""What the checks of different request fields have in common: a value's kind and range, and one value a prompt. Knows no
field."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

from jackfield.managers.errors import RequestError, shown


def refused(name: str, want: str, value: Any) -> RequestError:
    """The 400 for a value of the wrong kind or range. want: what would have been right."""
    return RequestError(f"{name} must be {want}, not {shown(value)}", param=name)


def whole(name: str, value: Any, low: int, high: int, flag: str = "") -> int:
    """A whole number from low to high. flag: the setting that says how high. Raises RequestError; true and 5.0 are no whole
    numbers."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not low <= int(value) <= high:
        raise refused(name, f"a whole number from {low} to {high}{flag and f' ({flag})'}", value)
    return int(value)


def real(name: str, value: Any, want: str) -> float:
    """A finite number. want: as for `refused`. Raises RequestError."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise refused(name, want, value)
    try:
        number = float(value)
    except OverflowError:
        raise refused(name, want, value) from None
    if not math.isfinite(number):
        raise refused(name, want, value)
    return number


def for_each(name: str, given: Any, count: int) -> Sequence[Any]:
    """`count` values from one for all prompts, or a list with one for each. Raises RequestError for a list of another
    length."""
    if not isinstance(given, list | tuple):
        return [given] * count
    if len(given) != count:
        raise RequestError(f"{name} has {len(given)} entries for {count} prompts", param=name)
    return given


def of_kind_for_each(name: str, given: Any, count: int, kind: type) -> list[Any] | None:
    """As `for_each`, for values of one kind; None is absent. A text is one prompt's: several prompts take a list."""
    if given is None:
        return None
    if isinstance(given, kind):
        if count > 1 and kind is str:
            raise RequestError(f"{name} must be a list of {count} when there are {count} prompts", param=name)
        return [given] * count
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise RequestError(f"{name} has the wrong type: {type(given).__name__}", param=name)
    if len(given) != count:
        raise RequestError(f"{name} has {len(given)} entries for {count} prompts", param=name)
    for entry in given:
        if not isinstance(entry, kind):
            raise RequestError(f"{name} holds a {type(entry).__name__}", param=name)
    return list(given)
