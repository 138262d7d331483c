"""Grammar backend `choice`."""

from __future__ import annotations

from jackfield.hookspecs import GrammarBackend, GrammarContext, hookimpl


@hookimpl
def jackfield_grammar_backend(context: GrammarContext) -> GrammarBackend:
    from choice_grammar.backend import ChoiceBackend

    return ChoiceBackend(context.vocab, context.stop_ids)
