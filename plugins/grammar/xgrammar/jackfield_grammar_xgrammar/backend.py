"""The backend: what is asked of a grammar before it is compiled, compiling, and loading what was compiled.

Importing xgrammar imports torch and transformers, seconds of it: the main process, which only checks, never does.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from jackfield.grammars.ebnf import read_ebnf
from jackfield.grammars.regex_reader import read_regex
from jackfield.grammars.regex_syntax import regex_text
from jackfield.grammars.schema_rules import check_schema
from jackfield.grammars.structural_tags import read_structural_tag
from jackfield.hookspecs import CompiledGrammar, GrammarBackend, GrammarContext, GrammarError, GrammarSpec
from jackfield_grammar_xgrammar.matcher import XgrammarGrammar
from jackfield_grammar_xgrammar.schema import MOST_WHITESPACE, RULES, schema_text
from jackfield_grammar_xgrammar.texts import ebnf_text, tag_json

FORMAT = 1


class XgrammarBackend(GrammarBackend):
    def __init__(self, context: GrammarContext) -> None:
        self.context = context
        self.built: tuple[Any, Any, str] | None = None

    def check(self, spec: GrammarSpec) -> None:
        self.plan(spec)

    def plan(self, spec: GrammarSpec) -> Callable[[Any], Any]:
        """What to ask of a xgrammar.GrammarCompiler. Pure Python. Raises GrammarError."""
        if spec.form == "json_schema":
            text = schema_text(check_schema(spec.source, RULES))
            return lambda compiler: compiler.compile_json_schema(
                text, any_whitespace=True, max_whitespace_cnt=MOST_WHITESPACE, strict_mode=False
            )
        if spec.form == "regex":
            pattern = regex_text(read_regex(spec.source))
            return lambda compiler: compiler.compile_regex(pattern)
        if spec.form == "ebnf":
            grammar = ebnf_text(read_ebnf(spec.source))
            return lambda compiler: compiler.compile_grammar(grammar)
        if spec.form == "structural_tag":
            tag = read_structural_tag(
                spec.source, lambda at, schema: check_schema(json.dumps(schema), RULES, within=at)
            )
            written = tag_json(tag)
            return lambda compiler: compiler.compile_structural_tag(written)
        raise GrammarError(f"the grammar backend xgrammar does not honour {spec.form}", keyword=spec.form)

    def warm_up(self) -> None:
        _, compiler, _ = self.library()
        compiler.compile_builtin_json_grammar()
        compiler.clear_cache()

    def compile(self, spec: GrammarSpec) -> bytes:
        ask = self.plan(spec)
        _, compiler, fingerprint = self.library()
        try:
            compiled = ask(compiler)
        except (RuntimeError, ValueError) as wrong:
            raise GrammarError(_reason(wrong), keyword=spec.form) from None
        record = {"format": FORMAT, "backend": "xgrammar", "for": fingerprint, "grammar": compiled.serialize_json()}
        return json.dumps(record).encode()

    def load(self, compiled: bytes) -> CompiledGrammar:
        import xgrammar

        tokenizer, _, fingerprint = self.library()
        record = json.loads(compiled)
        if not isinstance(record, dict) or record.get("for") != fingerprint or record.get("format") != FORMAT:
            raise ValueError(
                "this is no grammar that this version of the xgrammar backend compiled for this vocabulary"
            )
        grammar = xgrammar.CompiledGrammar.deserialize_json(record["grammar"], tokenizer)
        return XgrammarGrammar(
            lambda: xgrammar.GrammarMatcher(grammar), self.context.stop_ids, grammar.memory_size_bytes
        )

    def library(self) -> tuple[Any, Any, str]:
        """xgrammar.TokenizerInfo, xgrammar.GrammarCompiler, and what a compiled grammar depends on."""
        if self.built is None:
            import xgrammar

            vocab, stop_ids = list(self.context.vocab()), list(self.context.stop_ids)
            if len(vocab) != self.context.vocab_size:
                raise ValueError(f"the vocabulary has {len(vocab)} tokens, not {self.context.vocab_size}")
            tokenizer = xgrammar.TokenizerInfo(
                vocab, xgrammar.VocabType.RAW, vocab_size=len(vocab), stop_token_ids=stop_ids
            )
            # One thread: compilations run in forks, side by side, and the runtime caches what they give.
            compiler = xgrammar.GrammarCompiler(tokenizer, max_threads=1, cache_enabled=False)
            digest = hashlib.sha256(repr((xgrammar.get_serialization_version(), stop_ids)).encode())
            for text in vocab:
                digest.update(len(text).to_bytes(4, "little") + text)
            self.built = tokenizer, compiler, digest.hexdigest()
        return self.built


def _reason(wrong: Exception) -> str:
    """xgrammar's own words, without the place in its sources."""
    first = str(wrong).strip().partition("\n")[0]
    return "xgrammar: " + re.sub(r"^\[[\d:]+\] \S+: ", "", first)[:500]
