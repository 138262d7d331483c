"""Backends in a test: made by name, with grammars compiled and loaded, and texts tried on them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jackfield.hookspecs import (
    CompiledGrammar,
    GrammarBackend,
    GrammarContext,
    GrammarError,
    GrammarMatcher,
    GrammarSpec,
)

BYTES = [*(bytes([byte]) for byte in range(256)), b""]
END = 256
BACKENDS = {
    "llguidance": "jackfield_grammar_llguidance.backend:LlguidanceBackend",
    "xgrammar": "jackfield_grammar_xgrammar.backend:XgrammarBackend",
}


def make(
    name: str, vocab: Sequence[bytes], stop_ids: tuple[int, ...], special_ids: Mapping[str, int] | None = None
) -> GrammarBackend:
    module, _, kind = BACKENDS[name].partition(":")
    context = GrammarContext(
        kind="grammar",
        name=name,
        instance=name,
        vocab_size=len(vocab),
        stop_ids=stop_ids,
        vocab=lambda: vocab,
        special_ids=special_ids or {},
    )
    made: GrammarBackend = getattr(importlib.import_module(module), kind)(context)
    return made


def grammar(backend: GrammarBackend, form: str, source: Any) -> CompiledGrammar:
    """Checked, compiled and loaded."""
    text = source if isinstance(source, str) else json.dumps(source, ensure_ascii=False)
    spec = GrammarSpec(form=form, source=text)
    backend.check(spec)
    return backend.load(backend.compile(spec))


def refusal(act: Callable[[], Any]) -> str | None:
    """The message of the GrammarError that it raises; None if it raises none."""
    try:
        act()
    except GrammarError as wrong:
        return wrong.message
    return None


def takes(compiled: CompiledGrammar, text: str | bytes) -> bool:
    """Whether the whole text keeps to the grammar, byte by byte."""
    matcher = compiled.matcher()
    for byte in text.encode() if isinstance(text, str) else text:
        if matcher.terminated or not matcher.accept(byte):
            return False
    return complete(matcher)


def complete(matcher: GrammarMatcher) -> bool:
    """Whether the answer may end here."""
    mask = np.zeros(9, dtype=np.uint32)
    if not matcher.terminated:
        matcher.fill(mask)
    return matcher.terminated or bool(mask[8] & 1)


def spellings(value: Any) -> list[str]:
    """A JSON value compact, and as Python writes it."""
    return [json.dumps(value, ensure_ascii=False, separators=marks) for marks in ((",", ":"), (", ", ": "))]
