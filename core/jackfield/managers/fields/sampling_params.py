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
  repetition_penalty   (0, 2], as in SGLang; what is below 1e-6 could make a logit infinite, and is refused
  stop_token_ids   with min_new_tokens, not every id of the vocabulary
  logit_bias    keys are ids, as whole numbers or as JSON's text of one; a bias of 0 asks for nothing
  stop_regex    only patterns whose matches have a length, see `stop_regex`
  min_new_tokens   may not exceed max_new_tokens; a default that does is lowered. It holds back end tokens and stop ids, and
                stop strings and expressions are looked for only in the text behind so many tokens
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.ipc.messages import SamplingParams
from jackfield.managers.errors import SHOWN, RequestError
from jackfield.managers.fields.grammar import GRAMMAR_FIELDS, Grammars, after_ids
from jackfield.managers.fields.limits import DEFAULT_LIMITS, RequestLimits
from jackfield.managers.fields.not_yet import NOT_YET, refuse_not_yet
from jackfield.managers.fields.sampling_checks import CHECKS, MAX_COUNT, Bounds
from jackfield.managers.fields.schema_size import check_schemas

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
    *GRAMMAR_FIELDS,
)
"""The names that a client may send."""


Processors = Callable[[Any], dict[str, dict[str, Any]]]
"""Checks what a request sent as `logits_processors`; raises RequestError."""


def make_sampling_params(
    given: Mapping[str, Any],
    *,
    defaults: Mapping[str, Any],
    vocab_size: int,
    limits: RequestLimits = DEFAULT_LIMITS,
    unknown: Literal["refuse", "ignore"] = "refuse",
    processors: Processors | None = None,
    grammars: Grammars | None = None,
) -> SamplingParams:
    """The settings of one request.

    given      what the client sent
    defaults   the model's or the operator's values for what the client left out, in the same names
    limits     the run's ceilings
    unknown    "ignore" for callers whose own schema has checked the names; fields that are known but not implemented
               are refused either way
    processors   checks `logits_processors`; None: there are none
    grammars     checks the fields of `fields.grammar`; None: this run does none

    Raises RequestError naming the field.
    """
    sent = {name: value for name, value in given.items() if value is not None}
    check_schemas(sent, limits)
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
    bounds = Bounds(vocab_size, limits)
    for name, value in values.items():
        check = CHECKS.get(name)
        if check is not None:
            made[_ALIASES.get(name, name)] = check(name, value, bounds)
    if "logits_processors" in values:
        made["logits_processors"] = (processors or _no_processors)(values["logits_processors"])
    grammar = (grammars or _NO_GRAMMARS).spec(sent, limits)
    if grammar is not None:
        made["grammar"] = grammar
    if "grammar_after" in sent:
        if grammar is None:
            raise RequestError(
                "grammar_after says where a grammar begins, and the request has none", param="grammar_after"
            )
        made["grammar_after"] = after_ids(sent["grammar_after"], vocab_size)
    # Fast tokenizers put no spaces around special tokens, whatever it says; it is accepted for SGLang's clients.
    for name in ("spaces_between_special_tokens", "n", "best_of"):
        made.pop(name, None)
    params = SamplingParams(**made)
    if params.min_new_tokens and len(params.stop_token_ids) == vocab_size:
        raise RequestError(
            "stop_token_ids holds every id of the vocabulary, which leaves none for the first min_new_tokens tokens",
            param="stop_token_ids",
        )
    if params.min_new_tokens <= params.max_new_tokens:
        return params
    for name in ("min_new_tokens", "min_tokens"):
        if name in sent:
            raise RequestError(
                f"{name} {params.min_new_tokens} is more than the {params.max_new_tokens} tokens that the answer may have",
                param=name,
            )
    return msgspec.structs.replace(params, min_new_tokens=params.max_new_tokens)


def check_defaults(
    defaults: Mapping[str, Any], processors: Processors | None = None, limits: RequestLimits = DEFAULT_LIMITS
) -> SamplingParams:
    """Check the model's or the operator's values once, at start: a broken checkpoint is not each client's 400. Returns what
    a request that names nothing gets.

    Raises ConfigurationError naming the value.
    """
    if defaults.get("n") not in (None, 1):
        raise ConfigurationError("default sampling parameters: n is a client's to ask for, so it can have no default")
    for name in GRAMMAR_FIELDS:
        if defaults.get(name) is not None:
            raise ConfigurationError(
                f"default sampling parameters: {name} is a client's to ask for, so it can have no default"
            )
    try:
        return make_sampling_params(defaults, defaults={}, vocab_size=MAX_COUNT, limits=limits, processors=processors)
    except RequestError as error:
        raise ConfigurationError(f"default sampling parameters: {error.message}") from error


_NO_GRAMMARS = Grammars()


def _no_processors(given: Any) -> dict[str, dict[str, Any]]:
    if isinstance(given, Mapping) and all(value is None for value in given.values()):
        return {}
    raise RequestError("logits_processors: this server has none", param="logits_processors")


def _unknown(name: object) -> str:
    text = str(name)[:SHOWN]
    if text in _MEANT:
        return f"there is no sampling parameter {text!r} here; did you mean {_MEANT[text]!r}?"
    return f"there is no sampling parameter {text!r}{did_you_mean(text, FIELDS, noun='parameters')}"
