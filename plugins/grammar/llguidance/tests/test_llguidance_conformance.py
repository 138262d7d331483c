"""The conformance suite on llguidance."""

from __future__ import annotations

from jackfield.testing.conformance import GrammarConformance


class TestLlguidance(GrammarConformance):
    plugin = "llguidance"
    refused = (
        ("json_schema", '{"type": "array", "uniqueItems": true}', "uniqueItems"),
        ("json_schema", '{"type": "object", "properties": {"a": {"not": {}}}}', "/properties/a/not"),
        ("regex", "(?=a)b", "looks ahead"),
    )
