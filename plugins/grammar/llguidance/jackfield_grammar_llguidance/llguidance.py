"""The plugin's hook."""

from __future__ import annotations

from jackfield.hookspecs import GrammarBackend, GrammarContext, hookimpl


@hookimpl
def jackfield_grammar_backend(context: GrammarContext) -> GrammarBackend:
    from jackfield_grammar_llguidance.backend import LlguidanceBackend

    return LlguidanceBackend(context)
