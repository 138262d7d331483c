"""The fields that bind an answer to a grammar: json_schema, regex, ebnf, structural_tag and grammar_after, from what a client
sent to one `GrammarSpec`, or one clear refusal.

`schema_size` has checked sizes, and the nesting of JSON, before. What a schema may say, the grammar backend knows.

Policies:
  one of them   two are refused; null is absent
  json_schema, structural_tag   an object, or the text of one. Keys that come twice are refused, because one of them would be
                ignored
  grammar_after    ids behind which the grammar begins: until the answer holds them, one behind the other, it is free
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.hookspecs.grammar import GRAMMAR_FORMS, GrammarBackend, GrammarError, GrammarSpec
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.checks import refused, whole
from jackfield.managers.fields.limits import DEFAULT_LIMITS, RequestLimits
from jackfield.managers.grammar.words import refusal
from jackfield.managers.text.tokenizer import check_unicode

GRAMMAR_FIELDS = (*GRAMMAR_FORMS, "grammar_after")
MAX_AFTER = 64
"""Ids of a grammar_after."""

CHECK_FAILED = "The grammar could not be checked."
"""What the client is told of a backend's own fault; its words go to the log."""

_JSON_FORMS = ("json_schema", "structural_tag")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True, kw_only=True)
class Grammars:
    """What this run does of them.

    backend      None: nothing, and `missing` says why
    fault        told of every exception out of the backend that is no GrammarError
    """

    backend: GrammarBackend | None = None
    missing: str = "it runs no grammar backend (--grammar-backend)"
    fault: Callable[[BaseException], None] = lambda error: None

    def takes(self, spec: GrammarSpec) -> bool:
        """Whether the backend honours it in full. True if there is none, or if it fails: to say so is `spec`'s business."""
        try:
            if self.backend is not None:
                self.backend.check(spec)
        except GrammarError:
            return False
        except Exception as error:
            self.fault(error)
        return True

    def spec(self, values: Mapping[str, Any], limits: RequestLimits = DEFAULT_LIMITS) -> GrammarSpec | None:
        """What the fields among `values` ask for; those that are None are absent. Raises RequestError naming the field."""
        given = [form for form in GRAMMAR_FORMS if values.get(form) is not None]
        if not given:
            return None
        form = given[-1]
        if len(given) > 1:
            raise RequestError(
                f"{' and '.join(given)} are both given; an answer keeps to one of {', '.join(GRAMMAR_FORMS)}",
                param=form,
            )
        if self.backend is None:
            raise RequestError(
                f"{form} is not supported by this server: {self.missing}", param=form, code="not_supported"
            )
        spec = GrammarSpec(form=form, source=_source(form, values[form], limits.max_schema_depth))
        try:
            self.backend.check(spec)
        except GrammarError as error:
            raise RequestError(refusal(form, error.message, error.keyword), param=form) from error
        except Exception as error:
            self.fault(error)
            raise RequestError(CHECK_FAILED, param=form, status_code=500) from error
        return spec


def _source(form: str, value: Any, max_depth: int) -> str:
    if form in _JSON_FORMS and isinstance(value, Mapping):
        return _dumped(form, value)
    if not isinstance(value, str):
        raise refused(form, "an object, or its JSON text" if form in _JSON_FORMS else "a text", value)
    if not value:
        raise RequestError(f"{form} is empty", param=form)
    check_unicode(value, form)
    if form in _JSON_FORMS:
        return _dumped(form, _parsed(form, value))
    if _text_depth(value, _QUOTES[form]) > max_depth:
        raise RequestError(f"{form} is nested deeper than {max_depth} levels (--max-schema-depth)", param=form)
    return value


def after_ids(value: Any, vocab_size: int) -> tuple[int, ...]:
    """A checked grammar_after. Raises RequestError."""
    name = "grammar_after"
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise refused(name, "a list of token ids", value)
    if len(value) > MAX_AFTER:
        raise RequestError(f"{name} holds {len(value)} ids; at most {MAX_AFTER} are allowed", param=name)
    return tuple(whole(name, token, 0, vocab_size - 1) for token in value)


_QUOTES: Mapping[str, set[str]] = {"regex": set(), "ebnf": {'"', "'"}}


def _text_depth(text: str, quotes: set[str]) -> int:
    """Nesting of brackets outside of quoted texts; what a backslash precedes does not count. Linear."""
    depth = deepest = 0
    quoted, escaped = "", False
    for character in text:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif quoted:
            quoted = "" if character == quoted else quoted
        elif character in quotes:
            quoted = character
        elif character in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif character in _CLOSING:
            depth = max(0, depth - 1)
    return deepest


def _parsed(form: str, text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise RequestError(f"{form} has the key {twice!r} twice in one object", param=form)
        return found

    try:
        value = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise RequestError(
            f"{form} is not valid JSON: {error.msg}, line {error.lineno}, column {error.colno}", param=form
        ) from error
    except ValueError as error:  # a number with too many digits
        raise RequestError(f"{form} cannot be read: {error}", param=form) from error
    if not isinstance(value, dict):
        raise RequestError(f"{form} must be a JSON object", param=form)
    return value


def _dumped(form: str, value: Any) -> str:
    """The one text for equal values, so that equal grammars are compiled once."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{form} is no JSON value: {error}", param=form) from error
    check_unicode(text, form)
    return text
