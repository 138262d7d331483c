"""The backend: what is asked of a grammar before it is compiled, compiling, and loading what was compiled.

A compiled grammar is its text in llguidance's language: automata are built lazily while masks are computed, and the text is
small, closed, and runs nothing. Compiling tries the text out, so that what llguidance refuses is an error there.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from jackfield.grammars.ebnf import read_ebnf
from jackfield.grammars.regex_reader import read_regex
from jackfield.grammars.regex_syntax import regex_text
from jackfield.grammars.schema_rules import check_schema
from jackfield.grammars.structural_tags import read_structural_tag
from jackfield.hookspecs import CompiledGrammar, GrammarBackend, GrammarContext, GrammarError, GrammarSpec
from jackfield_grammar_llguidance.lark import lark_of_ebnf, lark_of_tag
from jackfield_grammar_llguidance.matcher import LlguidanceGrammar
from jackfield_grammar_llguidance.schema import RULES, json_grammar
from jackfield_grammar_llguidance.tokenizer import Tokenizer

FORMAT = 1
HEAD = '%llguidance {"no_forcing": true}\n'
LIMITS: dict[str, Any] = {
    "max_items_in_row": 2_000,
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 50_000,
    "max_lexer_states": 50_000,
    "max_grammar_size": 500_000,
    "verbose_errors": False,
}
"""llguidance's own, but for the automaton's states (1 to 2 kB each). One mask takes 15 ms at the very most within them."""


class LlguidanceBackend(GrammarBackend):
    def __init__(self, context: GrammarContext) -> None:
        self.context = context
        self.tokenizer: Tokenizer | None = None

    def check(self, spec: GrammarSpec) -> None:
        self.text(spec)

    def text(self, spec: GrammarSpec) -> str:
        """The spec in llguidance's language, Lark with `%json`. Pure Python. Raises GrammarError."""
        if spec.form == "json_schema":
            return f"{HEAD}start: %json {json_grammar(check_schema(spec.source, RULES))}\n"
        if spec.form == "regex":
            return f"{HEAD}start: /{regex_text(read_regex(spec.source))}/\n"
        if spec.form == "ebnf":
            return HEAD + lark_of_ebnf(read_ebnf(spec.source))
        if spec.form == "structural_tag":
            tag = read_structural_tag(
                spec.source, lambda at, schema: check_schema(json.dumps(schema), RULES, within=at)
            )
            return HEAD + lark_of_tag(tag, self.context.special_ids, self.context.vocab_size)
        raise GrammarError(f"the grammar backend llguidance does not honour {spec.form}", keyword=spec.form)

    def warm_up(self) -> None:
        self.parsed(f"{HEAD}start: %json {json_grammar({'type': 'object'})}\n")

    def compile(self, spec: GrammarSpec) -> bytes:
        text = self.text(spec)
        matcher, words = self.parsed(text)
        mask = np.zeros(words, dtype=np.uint32)
        matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if matcher.is_error():
            raise GrammarError(reason(matcher), keyword=spec.form)
        return json.dumps({"format": FORMAT, "backend": "llguidance", "text": text}).encode()

    def load(self, compiled: bytes) -> CompiledGrammar:
        record = json.loads(compiled)
        if not isinstance(record, dict) or (record.get("format"), record.get("backend")) != (FORMAT, "llguidance"):
            raise ValueError("this is no grammar that this version of the llguidance backend compiled")
        matcher, words = self.parsed(record["text"])
        return LlguidanceGrammar(matcher, words, len(compiled))

    def parsed(self, text: str) -> tuple[Any, int]:
        """An llguidance matcher at the text's beginning, and the words of its mask."""
        import llguidance

        if self.tokenizer is None:
            self.tokenizer = Tokenizer(self.context)
        limits = llguidance.LLParserLimits(**LIMITS)
        matcher = llguidance.LLMatcher(self.tokenizer.library, text, log_level=0, limits=limits)
        if matcher.is_error():
            raise GrammarError(reason(matcher))
        return matcher, self.tokenizer.words


def reason(matcher: Any) -> str:
    """llguidance's own words, without what it prints of its state."""
    first: str = re.sub(r"^at \d+\(\d+\): ", "", matcher.get_error().partition("\n")[0])
    if "coerce_one_of" in first:
        return "llguidance honours 'oneOf' only where it can tell that no value fits two of its options; 'anyOf' bears that"
    return "llguidance: " + first.removeprefix("failed to compile JSON schema: ")[:500]
