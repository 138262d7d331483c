"""A one-file plugin: the brute-force backend of `jackfield.testing`."""

from __future__ import annotations

from jackfield.hookspecs import GrammarBackend, GrammarContext, hookimpl

PLUGIN = {
    "kind": "grammar",
    "name": "twin",
    "summary": "Regular expressions by brute force",
    "contract": {"grammar": "0.1"},
    "features": ["regex"],
}


@hookimpl
def jackfield_grammar_backend(context: GrammarContext) -> GrammarBackend:
    from jackfield.testing.grammar_twin import TwinBackend

    return TwinBackend(context.vocab, context.stop_ids)
