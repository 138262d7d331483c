"""The check of each sampling field by itself: kind, range and size of what a client sent. Knows nothing of defaults, of names
that are not fields, or of one field's bearing on another: `sampling_params` does, and says the policies."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from jackfield.managers.errors import RequestError, shown
from jackfield.managers.fields.checks import real, refused, whole
from jackfield.managers.fields.choices import choice_count
from jackfield.managers.fields.limits import DEFAULT_LIMITS, RequestLimits
from jackfield.managers.text.regex_width import PatternError
from jackfield.managers.text.stop_regex import StopRegex, check_match_length, check_work, made_once
from jackfield.managers.text.tokenizer import check_unicode

GREEDY_BELOW = 1e-5
MAX_COUNT = 2**31 - 1
MIN_REPETITION = 1e-6
"""A logit divided by less could leave float32."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What depends on the model and the run. vocab_size: valid ids are 0 .. vocab_size - 1."""

    vocab_size: int
    limits: RequestLimits = DEFAULT_LIMITS


def _temperature(name: str, value: Any, bounds: Bounds) -> float:
    number = real(name, value, "a finite number from 0")
    if number < 0:
        raise refused(name, "a finite number from 0", value)
    return number if number >= GREEDY_BELOW else 0.0


def _top_p(name: str, value: Any, bounds: Bounds) -> float:
    want = "a number above 0 and at most 1"
    number = real(name, value, want)
    if not 0 < number <= 1:
        raise refused(name, want, value)
    return number


def _min_p(name: str, value: Any, bounds: Bounds) -> float:
    want = "a number from 0 to 1"
    number = real(name, value, want)
    if not 0 <= number <= 1:
        raise refused(name, want, value)
    return number


def _top_k(name: str, value: Any, bounds: Bounds) -> int:
    want = "a whole number from 1, or -1 or 0 for no limit"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < -1:
        raise refused(name, want, value)
    return int(value) if 0 < int(value) < bounds.vocab_size else 0


def _count(name: str, value: Any, bounds: Bounds) -> int:
    return whole(name, value, 0, MAX_COUNT)


def _interval(name: str, value: Any, bounds: Bounds) -> int:
    return whole(name, value, 1, MAX_COUNT)


def _seed(name: str, value: Any, bounds: Bounds) -> int:
    return whole(name, value, -(2**63), 2**63 - 1)


def _flag(name: str, value: Any, bounds: Bounds) -> bool:
    if not isinstance(value, bool):
        raise refused(name, "true or false", value)
    return value


def _stop(name: str, value: Any, bounds: Bounds) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, Sequence) or isinstance(stops, bytes):
        raise refused(name, "a text or a list of texts", value)
    _at_most(name, len(stops), "strings", bounds.limits.max_stops, "--max-stops")
    for stop in stops:
        if not isinstance(stop, str):
            raise refused(name, "a text or a list of texts", value)
        if not stop:
            raise RequestError(f"{name} holds an empty string, which would end every answer at once", param=name)
        if len(stop) > (most := bounds.limits.max_stop_length):
            raise RequestError(f"a {name} string may have at most {most} characters (--max-stop-length)", param=name)
        check_unicode(stop, name)
    return tuple(dict.fromkeys(stops))


def _stop_regex(name: str, value: Any, bounds: Bounds) -> tuple[str, ...]:
    want = "a pattern or a list of patterns"
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, Sequence) or isinstance(patterns, bytes):
        raise refused(name, want, value)
    limits = bounds.limits
    _at_most(name, len(patterns), "patterns", limits.max_stops, "--max-stops")
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise refused(name, want, value)
        if len(pattern) > limits.max_stop_regex_length:
            raise RequestError(
                f"a {name} pattern may have at most {limits.max_stop_regex_length} characters (--max-stop-regex-length)",
                param=name,
            )
        check_unicode(pattern, name)
    distinct = tuple(dict.fromkeys(patterns))
    taken: list[StopRegex] = []
    for pattern in distinct:
        try:
            check_match_length(pattern, limits.max_stop_regex_match)
            taken.append(made_once(pattern))
            check_work(taken, limits.max_stop_regex_work)
        except PatternError as error:
            raise RequestError(f"{name} {shown(pattern)} is not taken: {error}", param=name) from error
    return distinct


def _stop_token_ids(name: str, value: Any, bounds: Bounds) -> tuple[int, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise refused(name, "a list of token ids", value)
    _at_most(name, len(value), "ids", bounds.limits.max_stop_token_ids, "--max-stop-token-ids")
    return tuple(dict.fromkeys(whole(name, token, 0, bounds.vocab_size - 1) for token in value))


def _penalty(name: str, value: Any, bounds: Bounds) -> float:
    want = "a number from -2 to 2"
    number = real(name, value, want)
    if not -2 <= number <= 2:
        raise refused(name, want, value)
    return number


def _repetition(name: str, value: Any, bounds: Bounds) -> float:
    want = f"a number above 0 ({MIN_REPETITION:g} or more) and at most 2"
    number = real(name, value, want)
    if not MIN_REPETITION <= number <= 2:
        raise refused(name, want, value)
    return number


def _logit_bias(name: str, value: Any, bounds: Bounds) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise refused(name, "an object of token ids and numbers", value)
    _at_most(name, len(value), "ids", bounds.limits.max_logit_bias, "--max-logit-bias")
    biases: dict[int, float] = {}
    for key, bias in value.items():
        token = _id_of_key(name, key, bounds.vocab_size)
        if token in biases:
            raise RequestError(f"{name} names id {token} twice", param=name)
        want = "a number from -100 to 100 for each id"
        biases[token] = real(name, bias, want)
        if not -100 <= biases[token] <= 100:
            raise refused(name, want, bias)
    return {token: bias for token, bias in biases.items() if bias}


def _id_of_key(name: str, key: Any, vocab_size: int) -> int:
    """JSON has text for keys; only the one spelling of a number counts, so that no two keys mean one id."""
    if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 10 and str(int(key)) == key:
        key = int(key)
    if isinstance(key, bool) or not isinstance(key, numbers.Integral) or not 0 <= int(key) < vocab_size:
        raise RequestError(f"{name} has the key {shown(key)}; keys are ids from 0 to {vocab_size - 1}", param=name)
    return int(key)


def _choices(name: str, value: Any, bounds: Bounds) -> int | None:
    return choice_count(name, value, bounds.limits.max_choices)


def _at_most(name: str, count: int, what: str, most: int, flag: str) -> None:
    if count > most:
        raise RequestError(f"{name} holds {count} {what}; at most {most} are allowed ({flag})", param=name)


CHECKS: Mapping[str, Callable[[str, Any, Bounds], Any]] = MappingProxyType(
    {
        "n": _choices,
        "best_of": _choices,
        "max_new_tokens": _count,
        "stop": _stop,
        "stop_regex": _stop_regex,
        "stop_token_ids": _stop_token_ids,
        "temperature": _temperature,
        "top_p": _top_p,
        "top_k": _top_k,
        "min_p": _min_p,
        "seed": _seed,
        "sampling_seed": _seed,
        "ignore_eos": _flag,
        "skip_special_tokens": _flag,
        "spaces_between_special_tokens": _flag,
        "no_stop_trim": _flag,
        "stream_interval": _interval,
        "frequency_penalty": _penalty,
        "presence_penalty": _penalty,
        "repetition_penalty": _repetition,
        "logit_bias": _logit_bias,
        "min_new_tokens": _count,
        "min_tokens": _count,
    }
)
"""Field as sent -> its check, of (name, value, bounds); returns the checked value or raises RequestError."""
