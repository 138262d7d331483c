"""The conformance suite on xgrammar."""

from __future__ import annotations

from jackfield.testing.conformance import GrammarConformance


class TestXgrammar(GrammarConformance):
    plugin = "xgrammar"
    refused = (
        ("json_schema", '{"type": "array", "uniqueItems": true}', "uniqueItems"),
        ("json_schema", '{"type": "object", "properties": {"a": {"not": {}}}}', "/properties/a/not"),
        ("regex", "(?=a)b", "looks ahead"),
        ("json_schema", '{"minLength": 2}', "/minLength"),
    )
