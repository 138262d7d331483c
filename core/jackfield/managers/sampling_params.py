"""What a client may ask of sampling: from the values that were sent to a `SamplingParams`, or one clear refusal.

Pure validation, no defaults of its own beyond those of `SamplingParams`. Nothing is ignored in silence: an unknown name,
a value of the wrong type or range, and a field that this version does not implement are each a 400 that names the field.

Policies, where real servers differ:
  null means absent, for every field
  temperature   any finite number from 0; below 1e-5 it is greedy
  top_p         (0, 1]; 0 is refused, it is neither "off" nor a way to say greedy
  top_k         -1 and 0 are off; a value of the vocabulary's size or more is off too
  stop          "" is refused, alone or in a list; [] means none
  n, best_of    of the call and not of one answer: `choices` checks them
  numbers       true, "0.7" and 5.0 for a whole number are of the wrong type
  repetition_penalty   (0, 2], as in SGLang
  logit_bias    keys are ids, as whole numbers or as JSON's text of one; a bias of 0 asks for nothing
  stop_regex    only patterns whose matches have a length, see `stop_regex`
  min_new_tokens   may not exceed max_new_tokens; a default that does is lowered. It holds back end tokens and stop ids, and
                stop strings and expressions are looked for only in the text behind so many tokens
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.ipc.messages import SamplingParams
from jackfield.managers.choices import choice_count
from jackfield.managers.errors import SHOWN, RequestError, shown
from jackfield.managers.not_yet import NOT_YET, refuse_not_yet
from jackfield.managers.regex_width import PatternError
from jackfield.managers.stop_regex import MAX_PATTERN_CHARS, MAX_PATTERNS, StopRegex
from jackfield.managers.tokenizer import check_unicode

GREEDY_BELOW = 1e-5
MAX_STOPS = 32
MAX_STOP_CHARS = 1024
MAX_COUNT = 2**31 - 1
MAX_LOGIT_BIAS = 512

_ALIASES = {"sampling_seed": "seed", "min_tokens": "min_new_tokens"}

_MEANT = {"max_tokens": "max_new_tokens", "max_completion_tokens": "max_new_tokens", "max_length": "max_new_tokens"}

FIELDS = (
    "n",
    "best_of",
    "max_new_tokens",
    "stop",
    "stop_regex",
    "stop_token_ids",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "sampling_seed",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "no_stop_trim",
    "stream_interval",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "min_new_tokens",
    "min_tokens",
    "logits_processors",
)
"""The names that a client may send."""


Processors = Callable[[Any], dict[str, dict[str, Any]]]
"""Checks what a request sent as `logits_processors`; raises RequestError."""


def make_sampling_params(
    given: Mapping[str, Any],
    *,
    defaults: Mapping[str, Any],
    vocab_size: int,
    unknown: Literal["refuse", "ignore"] = "refuse",
    processors: Processors | None = None,
) -> SamplingParams:
    """The settings of one request.

    given      what the client sent
    defaults   the model's or the operator's values for what the client left out, in the same names
    unknown    "ignore" for callers whose own schema has checked the names; fields that are known but not implemented
               are refused either way
    processors   checks `logits_processors`; None: there are none

    Raises RequestError naming the field.
    """
    sent = {name: value for name, value in given.items() if value is not None}
    refuse_not_yet(sent)
    if unknown == "refuse":
        for name in sent:
            if name not in FIELDS and name not in NOT_YET:
                raise RequestError(_unknown(name), param=str(name)[:SHOWN])
    for alias, name in _ALIASES.items():
        if alias in sent and name in sent and sent[alias] != sent[name]:
            raise RequestError(f"{name} and {alias} are two names of one field, and differ", param=alias)
    replaced = {_ALIASES[name] for name in sent if name in _ALIASES}
    values = {name: value for name, value in defaults.items() if value is not None and name not in replaced}
    values.update(sent)
    made: dict[str, Any] = {}
    for name, value in values.items():
        check = _CHECKS.get(name)
        if check is not None:
            made[_ALIASES.get(name, name)] = check(name, value, vocab_size)
    if "logits_processors" in values:
        made["logits_processors"] = (processors or _no_processors)(values["logits_processors"])
    # Fast tokenizers put no spaces around special tokens, whatever it says; it is accepted for SGLang's clients.
    for name in ("spaces_between_special_tokens", "n", "best_of"):
        made.pop(name, None)
    params = SamplingParams(**made)
    if params.min_new_tokens <= params.max_new_tokens:
        return params
    for name in ("min_new_tokens", "min_tokens"):
        if name in sent:
            raise RequestError(
                f"{name} {params.min_new_tokens} is more than the {params.max_new_tokens} tokens that the answer may have",
                param=name,
            )
    return msgspec.structs.replace(params, min_new_tokens=params.max_new_tokens)


def check_defaults(defaults: Mapping[str, Any], processors: Processors | None = None) -> SamplingParams:
    """Check the model's or the operator's values once, at start: a broken checkpoint is not each client's 400. Returns what
    a request that names nothing gets.

    Raises ConfigurationError naming the value.
    """
    if defaults.get("n") not in (None, 1):
        raise ConfigurationError("default sampling parameters: n is a client's to ask for, so it can have no default")
    try:
        return make_sampling_params(defaults, defaults={}, vocab_size=MAX_COUNT, processors=processors)
    except RequestError as error:
        raise ConfigurationError(f"default sampling parameters: {error.message}") from error


def _no_processors(given: Any) -> dict[str, dict[str, Any]]:
    if isinstance(given, Mapping) and all(value is None for value in given.values()):
        return {}
    raise RequestError("logits_processors: this server has none", param="logits_processors")


def _unknown(name: object) -> str:
    text = str(name)[:SHOWN]
    if text in _MEANT:
        return f"there is no sampling parameter {text!r} here; did you mean {_MEANT[text]!r}?"
    return f"there is no sampling parameter {text!r}{did_you_mean(text, FIELDS, noun='parameters')}"


def _refused(name: str, want: str, value: Any) -> RequestError:
    return RequestError(f"{name} must be {want}, not {shown(value)}", param=name)


def _real(name: str, value: Any, want: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _refused(name, want, value)
    try:
        real = float(value)
    except OverflowError:
        raise _refused(name, want, value) from None
    if not math.isfinite(real):
        raise _refused(name, want, value)
    return real


def _whole(name: str, value: Any, low: int, high: int) -> int:
    want = f"a whole number from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not low <= int(value) <= high:
        raise _refused(name, want, value)
    return int(value)


def _temperature(name: str, value: Any, vocab_size: int) -> float:
    real = _real(name, value, "a finite number from 0")
    if real < 0:
        raise _refused(name, "a finite number from 0", value)
    return real if real >= GREEDY_BELOW else 0.0


def _top_p(name: str, value: Any, vocab_size: int) -> float:
    want = "a number above 0 and at most 1"
    real = _real(name, value, want)
    if not 0 < real <= 1:
        raise _refused(name, want, value)
    return real


def _min_p(name: str, value: Any, vocab_size: int) -> float:
    want = "a number from 0 to 1"
    real = _real(name, value, want)
    if not 0 <= real <= 1:
        raise _refused(name, want, value)
    return real


def _top_k(name: str, value: Any, vocab_size: int) -> int:
    want = "a whole number from 1, or -1 or 0 for no limit"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < -1:
        raise _refused(name, want, value)
    return int(value) if 0 < int(value) < vocab_size else 0


def _count(name: str, value: Any, vocab_size: int) -> int:
    return _whole(name, value, 0, MAX_COUNT)


def _interval(name: str, value: Any, vocab_size: int) -> int:
    return _whole(name, value, 1, MAX_COUNT)


def _seed(name: str, value: Any, vocab_size: int) -> int:
    return _whole(name, value, -(2**63), 2**63 - 1)


def _flag(name: str, value: Any, vocab_size: int) -> bool:
    if not isinstance(value, bool):
        raise _refused(name, "true or false", value)
    return value


def _stop(name: str, value: Any, vocab_size: int) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, Sequence) or isinstance(stops, bytes):
        raise _refused(name, "a text or a list of texts", value)
    if len(stops) > MAX_STOPS:
        raise RequestError(f"{name} holds {len(stops)} strings; at most {MAX_STOPS} are allowed", param=name)
    for stop in stops:
        if not isinstance(stop, str):
            raise _refused(name, "a text or a list of texts", value)
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
        raise _refused(name, want, value)
    if len(patterns) > MAX_PATTERNS:
        raise RequestError(f"{name} holds {len(patterns)} patterns; at most {MAX_PATTERNS} are allowed", param=name)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise _refused(name, want, value)
        if len(pattern) > MAX_PATTERN_CHARS:
            raise RequestError(f"a {name} pattern may have at most {MAX_PATTERN_CHARS} characters", param=name)
        check_unicode(pattern, name)
        try:
            StopRegex(pattern)
        except PatternError as error:
            raise RequestError(f"{name} {shown(pattern)} is not taken: {error}", param=name) from error
    return tuple(dict.fromkeys(patterns))


def _stop_token_ids(name: str, value: Any, vocab_size: int) -> tuple[int, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise _refused(name, "a list of token ids", value)
    return tuple(dict.fromkeys(_whole(name, token, 0, vocab_size - 1) for token in value))


def _penalty(name: str, value: Any, vocab_size: int) -> float:
    want = "a number from -2 to 2"
    real = _real(name, value, want)
    if not -2 <= real <= 2:
        raise _refused(name, want, value)
    return real


def _repetition(name: str, value: Any, vocab_size: int) -> float:
    want = "a number above 0 and at most 2"
    real = _real(name, value, want)
    if not 0 < real <= 2:
        raise _refused(name, want, value)
    return real


def _logit_bias(name: str, value: Any, vocab_size: int) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise _refused(name, "an object of token ids and numbers", value)
    if len(value) > MAX_LOGIT_BIAS:
        raise RequestError(f"{name} holds {len(value)} ids; at most {MAX_LOGIT_BIAS} are allowed", param=name)
    biases: dict[int, float] = {}
    for key, bias in value.items():
        token = _id_of_key(name, key, vocab_size)
        if token in biases:
            raise RequestError(f"{name} names id {token} twice", param=name)
        want = "a number from -100 to 100 for each id"
        biases[token] = _real(name, bias, want)
        if not -100 <= biases[token] <= 100:
            raise _refused(name, want, bias)
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


_CHECKS: dict[str, Callable[[str, Any, int], Any]] = {
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
