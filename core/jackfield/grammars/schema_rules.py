"""Which JSON schemas a backend honours in full, as data, and the check against it.

A backend's libraries ignore some keywords, and some only beside others, without a word. So each backend has an allow-list, and
says what a keyword of it needs or does not bear. What is on the list, tests prove with values that break it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jackfield.grammars.formats import FORMATS
from jackfield.grammars.regex_reader import read_regex
from jackfield.grammars.regex_syntax import regex_text
from jackfield.grammars.schema_keywords import ANNOTATIONS, KEYWORDS
from jackfield.grammars.schema_walk import Place, escaped, places, read_json
from jackfield.hookspecs.grammar import GrammarError

_SILENT = ANNOTATIONS | {"$schema", "$id", "$defs", "definitions"}


@dataclass(frozen=True, kw_only=True)
class SchemaRules:
    """backend    the backend's name, for messages
    keywords   what it honours, of `schema_keywords.KEYWORDS`
    typed      keywords about one type count only where `type` allows that type: without it the library ignores them, or takes
               the type for granted
    company    keyword -> the only ones that may stand beside it; a keyword that is not named bears all
    further    more to ask at each place; each raises GrammarError by `Place.error`
    """

    backend: str
    keywords: frozenset[str]
    typed: bool = False
    company: Mapping[str, frozenset[str]] = field(default_factory=dict)
    further: Sequence[Callable[[Place], None]] = ()


def check_schema(source: str, rules: SchemaRules, *, within: str = "") -> Any:
    """The schema of a JSON text. Raises GrammarError, with the JSON pointer of what is malformed or not honoured in full.

    within: where the schema lies in something larger, a JSON pointer that goes before the schema's own.
    """
    schema = read_json(source, "the JSON schema")
    try:
        for place in places(schema):
            _check_place(place, rules)
    except GrammarError as wrong:
        if not within:
            raise
        raise GrammarError(f"in {within}: {wrong.message}", keyword=within + wrong.keyword) from None
    return schema


def _check_place(place: Place, rules: SchemaRules) -> None:
    said = [keyword for keyword in place.schema if keyword in KEYWORDS and keyword not in _SILENT]
    for keyword in said:
        if keyword not in rules.keywords:
            raise place.error(keyword, f"the grammar backend {rules.backend} does not honour {keyword!r}")
        types = KEYWORDS[keyword].types
        if rules.typed and types and not (place.types and place.types & types):
            raise place.error(keyword, f'{rules.backend} honours it only beside "type": "{sorted(types)[-1]}"')
        if keyword in rules.company:
            for other in said:
                if other != keyword and other not in rules.company[keyword]:
                    raise place.error(other, f"{rules.backend} does not honour {other!r} beside {keyword!r}")
    if (name := place.schema.get("format")) is not None and name not in FORMATS:
        raise place.error("format", f"{name!r} is no format that is honoured; these are: {', '.join(FORMATS)}")
    if (pattern := place.schema.get("pattern")) is not None:
        read_regex(pattern, where=f"JSON schema, {place.pointer}/pattern", search=True)
    for pattern in place.schema.get("patternProperties", ()):
        where = f"JSON schema, {place.pointer}/patternProperties/{escaped(pattern)}"
        read_regex(pattern, where=where, search=True)
    for ask in rules.further:
        ask(place)


def whole_pattern(pattern: str, *, search: bool = True) -> str:
    """A pattern in the dialect that every engine reads alike, as the whole text."""
    return f"^(?:{regex_text(read_regex(pattern, search=search))})$"


@cache
def format_pattern(name: str) -> str:
    return whole_pattern(FORMATS[name], search=False)


def rewrite(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """The schema without annotations, and with `change` done to each schema in it, inner ones first."""
    if not isinstance(schema, dict):
        return schema
    plain: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in ("$defs", "definitions") or (keyword in KEYWORDS and keyword not in _SILENT):
            plain[keyword] = _rewritten(keyword, value, change)
    return change(plain)


def _rewritten(keyword: str, value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    rule = KEYWORDS[keyword]
    if rule.one:
        return rewrite(value, change)
    if rule.several:
        return [rewrite(sub, change) for sub in value]
    if rule.named:
        return {name: rewrite(sub, change) for name, sub in value.items()}
    return value


def control_characters(value: Any) -> bool:
    """Whether a value to be written holds characters that JSON can write by number only."""
    if isinstance(value, str):
        return bool(re.search(r"[\x00-\x07\x0b\x0e-\x1f]", value))
    if isinstance(value, list):
        return any(map(control_characters, value))
    return isinstance(value, dict) and any(map(control_characters, [*value, *value.values()]))
