"""Fields of SGLang's and OpenAI's requests that this version does not implement, and the values with which they ask for
nothing.

A field with its neutral value passes, because clients send their whole schema; with any other value it is refused by
name. Remove a row when the feature comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jackfield.managers.errors import RequestError


def _is(neutral: float) -> Callable[[Any], bool]:
    # `True == 1` and `False == 0` in Python; a client that sends a flag for a number has not said "neutral".
    return lambda value: not isinstance(value, bool) and isinstance(value, int | float) and value == neutral


def _off(value: Any) -> bool:
    return value is False


def _empty(value: Any) -> bool:
    return isinstance(value, str | list | tuple | dict) and not value


def _never(value: Any) -> bool:
    return False


def _plain_text(value: Any) -> bool:
    return isinstance(value, dict) and value == {"type": "text"}


def _no_choice(value: Any) -> bool:
    return value in ("none", "auto") if isinstance(value, str) else False


NOT_YET: Mapping[str, Callable[[Any], bool]] = {
    "beam_width": _is(1),
    "num_beams": _is(1),
    "prompt_logprobs": _never,
    "response_format": _plain_text,
    "tools": _empty,
    "tool_choice": _no_choice,
    "functions": _empty,
    "function_call": _no_choice,
    "custom_logit_processor": _never,
    "custom_params": _empty,
    "watermark": _off,
    "return_hidden_states": _off,
}
"""Name -> whether a value asks for nothing."""


def refuse_not_yet(sent: Mapping[str, Any]) -> None:
    """Raises RequestError naming the first field of `sent` that asks for something not implemented; None is absent."""
    for name, value in sent.items():
        neutral = NOT_YET.get(name) if isinstance(name, str) else None
        if neutral is not None and value is not None and not neutral(value):
            raise RequestError(f"{name} is not supported by this version", param=name, code="not_supported")
