"""The grammar suite on the brute-force backend, which is right by construction."""

from __future__ import annotations

from pathlib import Path

from jackfield.testing.conformance import GrammarConformance
from jackfield.testing.conformance.grammar_examples import GrammarExample


class TestTwin(GrammarConformance):
    plugin = "twin"
    file = Path(__file__).parent / "twin_grammar.py"
    examples = (
        GrammarExample(form="regex", source="é+", valid=(("é",), ("ééé",)), violating=("", "e", "éa")),
        GrammarExample(form="regex", source="(ab|a.c)*x", valid=(("x",), ("abx",), ("aacabx",)), violating=("", "ab")),
        GrammarExample(
            form="regex", source="a{0,2}[^a]|\\[\\d", valid=(("aab",), ("[1",)), violating=("aaab", "a", "aa")
        ),
    )
