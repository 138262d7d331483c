"""What the contract asks of every plugin of this kind."""

from __future__ import annotations

from jackfield.testing.conformance import GrammarConformance
from jackfield.testing.conformance.grammar_examples import GrammarExample


class TestConformance(GrammarConformance):
    plugin = "choice"
    examples = (
        GrammarExample(
            form="json_schema",
            source='{"enum": ["a", "ab", 7, null, "é"]}',
            valid=(('"a"',), ('"ab"',), ("7",), ("null",), ('"é"',)),
            violating=("", '"a', '"b"', "77", "nul", '"e"'),
        ),
    )
    refused = (
        ("json_schema", '{"enum": [1], "type": "integer"}', "/type"),
        ("json_schema", '{"enum": []}', "/enum"),
        ("regex", "a|b", "regex"),
    )
