"""The check of each sampling field by itself: kind, range and size of what a client sent. Knows nothing of defaults, of names
that are not fields, or of one field's bearing on another: `sampling_params` does, and says the policies."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jackfield.managers.errors import RequestError, shown
from jackfield.managers.fields.checks import real, refused, whole
from jackfield.managers.fields.choices import choice_count
from jackfield.managers.text.regex_width import PatternError
from jackfield.managers.text.stop_regex import MAX_PATTERN_CHARS, MAX_PATTERNS, StopRegex, check_work, made_once
from jackfield.managers.text.tokenizer import check_unicode

GREEDY_BELOW = 1e-5
MAX_STOPS = 32
MAX_STOP_CHARS = 1024
MAX_COUNT = 2**31 - 1
MAX_LOGIT_BIAS = 512
MAX_STOP_TOKEN_IDS = 1024
MIN_REPETITION = 1e-6
"""A logit divided by less could leave float32."""


def _temperature(name: str, value: Any, vocab_size: int) -> float:
    number = real(name, value, "a finite number from 0")
    if number < 0:
        raise refused(name, "a finite number from 0", value)
    return number if number >= GREEDY_BELOW else 0.0


def _top_p(name: str, value: Any, vocab_size: int) -> float:
    want = "a number above 0 and at most 1"
    number = real(name, value, want)
    if not 0 < number <= 1:
        raise refused(name, want, value)
    return number


def _min_p(name: str, value: Any, vocab_size: int) -> float:
    want = "a number from 0 to 1"
    number = real(name, value, want)
    if not 0 <= number <= 1:
        raise refused(name, want, value)
    return number


def _top_k(name: str, value: Any, vocab_size: int) -> int:
    want = "a whole number from 1, or -1 or 0 for no limit"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < -1:
        raise refused(name, want, value)
    return int(value) if 0 < int(value) < vocab_size else 0


def _count(name: str, value: Any, vocab_size: int) -> int:
    return whole(name, value, 0, MAX_COUNT)


def _interval(name: str, value: Any, vocab_size: int) -> int:
    return whole(name, value, 1, MAX_COUNT)


def _seed(name: str, value: Any, vocab_size: int) -> int:
    return whole(name, value, -(2**63), 2**63 - 1)


def _flag(name: str, value: Any, vocab_size: int) -> bool:
    if not isinstance(value, bool):
        raise refused(name, "true or false", value)
    return value


def _stop(name: str, value: Any, vocab_size: int) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, Sequence) or isinstance(stops, bytes):
        raise refused(name, "a text or a list of texts", value)
    if len(stops) > MAX_STOPS:
        raise RequestError(f"{name} holds {len(stops)} strings; at most {MAX_STOPS} are allowed", param=name)
    for stop in stops:
        if not isinstance(stop, str):
            raise refused(name, "a text or a list of texts", value)
        if not stop:
            raise RequestError(f"{name} holds an empty string, which would end every answer at once", param=name)
        if len(stop) > MAX_STOP_CHARS:
            raise RequestError(f"a {name} string may have at most {MAX_STOP_CHARS} characters", param=name)
        check_unicode(stop, name)
    return tuple(dict.fromkeys(stops))


def _stop_regex(name: str, value: Any, vocab_size: int) -> tuple[str, ...]:
    want = "a pattern or a list of patterns"
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, Sequence) or isinstance(patterns, bytes):
        raise refused(name, want, value)
    if len(patterns) > MAX_PATTERNS:
        raise RequestError(f"{name} holds {len(patterns)} patterns; at most {MAX_PATTERNS} are allowed", param=name)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise refused(name, want, value)
        if len(pattern) > MAX_PATTERN_CHARS:
            raise RequestError(f"a {name} pattern may have at most {MAX_PATTERN_CHARS} characters", param=name)
        check_unicode(pattern, name)
    distinct = tuple(dict.fromkeys(patterns))
    taken: list[StopRegex] = []
    for pattern in distinct:
        try:
            taken.append(made_once(pattern))
            check_work(taken)
        except PatternError as error:
            raise RequestError(f"{name} {shown(pattern)} is not taken: {error}", param=name) from error
    return distinct


def _stop_token_ids(name: str, value: Any, vocab_size: int) -> tuple[int, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise refused(name, "a list of token ids", value)
    if len(value) > MAX_STOP_TOKEN_IDS:
        raise RequestError(f"{name} holds {len(value)} ids; at most {MAX_STOP_TOKEN_IDS} are allowed", param=name)
    return tuple(dict.fromkeys(whole(name, token, 0, vocab_size - 1) for token in value))


def _penalty(name: str, value: Any, vocab_size: int) -> float:
    want = "a number from -2 to 2"
    number = real(name, value, want)
    if not -2 <= number <= 2:
        raise refused(name, want, value)
    return number


def _repetition(name: str, value: Any, vocab_size: int) -> float:
    want = f"a number above 0 ({MIN_REPETITION:g} or more) and at most 2"
    number = real(name, value, want)
    if not MIN_REPETITION <= number <= 2:
        raise refused(name, want, value)
    return number


def _logit_bias(name: str, value: Any, vocab_size: int) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise refused(name, "an object of token ids and numbers", value)
    if len(value) > MAX_LOGIT_BIAS:
        raise RequestError(f"{name} holds {len(value)} ids; at most {MAX_LOGIT_BIAS} are allowed", param=name)
    biases: dict[int, float] = {}
    for key, bias in value.items():
        token = _id_of_key(name, key, vocab_size)
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


def _choices(name: str, value: Any, vocab_size: int) -> int | None:
    return choice_count(name, value)


CHECKS: Mapping[str, Callable[[str, Any, int], Any]] = MappingProxyType(
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
"""Field as sent -> its check, of (name, value, vocabulary size); returns the checked value or raises RequestError."""
