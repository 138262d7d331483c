"""Grammars: what a request's output must keep to."""

from __future__ import annotations

from dataclasses import dataclass

GRAMMAR_FORMS = ("json_schema", "regex", "ebnf", "structural_tag")


@dataclass(frozen=True, kw_only=True)
class GrammarSpec:
    """form     one of `GRAMMAR_FORMS`
    source   the JSON schema as text ('{"type": "object"}' for any object), the pattern, the grammar, or the structural tag as
             JSON text
    """

    form: str
    source: str
