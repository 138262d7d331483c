"""Each backend honours a JSON schema in full or refuses it: by cases, by spelling, by random schemas and walks."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from jackfield.grammars.formats import FORMATS
from jackfield.grammars.schema_keywords import KEYWORDS
from jackfield.hookspecs import GrammarBackend, GrammarError, GrammarSpec
from jackfield.testing.schema_cases import CASES, FORMAT_CASES, VIOLATING_TEXTS, SchemaCase
from jackfield.testing.schema_strategy import schemas, written
from tests.unit.grammars.backends import grammar, make, refusal, spellings, takes


def rules(backend: GrammarBackend) -> Any:
    name = type(backend).__name__.removesuffix("Backend").lower()
    return __import__(f"jackfield_grammar_{name}.schema", fromlist=["RULES"]).RULES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.keyword)
def test_b73_a_keyword_is_honoured_or_the_schema_is_refused(backend: GrammarBackend, case: SchemaCase) -> None:
    try:
        compiled = grammar(backend, "json_schema", case.schema)
    except GrammarError:
        return  # whether too much is refused, the next test says
    for value in case.valid:
        assert any(takes(compiled, text) for text in spellings(value)), f"{case.schema} does not let {value!r} pass"
    for value in case.violating:
        for text in spellings(value):
            assert not takes(compiled, text), f"{case.schema} lets {text} pass"


def test_each_keyword_that_is_honoured_has_a_case_that_is_not_refused(backend: GrammarBackend) -> None:
    proven = set()
    for case in CASES:
        try:
            backend.check(GrammarSpec(form="json_schema", source=json.dumps(case.schema)))
        except GrammarError:
            continue
        proven.add(case.keyword)
    assert set(rules(backend).keywords) - {"format"} == proven - {"format"}
    assert set(FORMAT_CASES) == set(FORMATS)


def test_the_cases_are_right() -> None:
    for case in CASES:
        check = jsonschema.Draft202012Validator(case.schema)
        assert all(map(check.is_valid, case.valid)), case
        # jsonschema reads patterns as Python does, where \\d fits digits of every script; ECMAScript's, which count, are ASCII.
        assert "\\d" in str(case.schema) or not any(map(check.is_valid, case.violating)), case
    assert {case.keyword for case in CASES} | {"format"} >= set(KEYWORDS) - {"$defs", "definitions", "then", "else"}


@pytest.mark.parametrize(("keyword", "schema", "text"), VIOLATING_TEXTS)
def test_violations_by_spelling(backend: GrammarBackend, keyword: str, schema: Any, text: str) -> None:
    try:
        compiled = grammar(backend, "json_schema", schema)
    except GrammarError:
        return
    assert not takes(compiled, text), f"{schema} lets {text} pass"


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_exact(backend: GrammarBackend, name: str) -> None:
    if "format" not in rules(backend).keywords:
        pytest.skip("this backend refuses formats")
    compiled = grammar(backend, "json_schema", {"type": "string", "format": name})
    valid, violating = FORMAT_CASES[name]
    assert [text for text in valid if not takes(compiled, f'"{text}"')] == []
    assert [text for text in violating if takes(compiled, f'"{text}"')] == []


def test_b72_whitespace_is_bounded(backend: GrammarBackend) -> None:
    for schema in ({"type": "object"}, {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}):
        compiled = grammar(backend, "json_schema", schema)
        assert takes(compiled, '{"a":1}')
        assert takes(compiled, '{ "a": 1 }')
        assert not takes(compiled, '{   "a":1}')
        assert not takes(compiled, '{"a":   1}')
        assert not takes(compiled, ' {"a":1}')
        assert not takes(compiled, '{"a":1} ')
    listed = grammar(backend, "json_schema", {"type": "array", "items": {"type": "integer"}})
    assert takes(listed, "[1, 2]")
    assert not takes(listed, "[1,   2]")


def test_b73_a_schema_sent_with_escapes_is_the_same_schema(backend: GrammarBackend) -> None:
    compiled = grammar(backend, "json_schema", '{"enum": ["\\u65e5\\u672c", "\\ud83d\\ude00", "a\\"b\\\\c"]}')
    for value in ("日本", "😀", 'a"b\\c'):
        assert takes(compiled, json.dumps(value, ensure_ascii=False))


def test_annotations_change_nothing(backend: GrammarBackend) -> None:
    plain = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    noted: dict[str, Any] = {
        "title": "T",
        "$schema": "http://json-schema.org/draft-07/schema#",
        "x-guidance": {"lenient": True},
    }
    with_notes = plain | noted | {"properties": {"a": {"type": "integer", "description": "d", "default": "x"}}}
    for schema in (plain, with_notes):
        compiled = grammar(backend, "json_schema", schema)
        assert takes(compiled, '{"a":1}')
        assert not takes(compiled, '{"a":"x"}')
        assert not takes(compiled, '{"a":1,"b":2}')


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "minItems": 3, "maxItems": 1},
        {"type": "integer", "minimum": 3, "maximum": 1},
        {"type": "string", "minLength": 3, "maxLength": 1},
        {"type": "string", "maxLength": 10**9},
        {"type": "array", "items": {"type": "integer"}, "minItems": 10**6},
        {"type": "object", "properties": {f"k{i}": {"type": "integer"} for i in range(3000)}},
        json.loads('{"type":"array","items":' * 90 + '{"type":"null"}' + "}" * 90),
        {"enum": [f"k{i}" for i in range(3000)]},
        {"type": "string", "pattern": "^(a+)+(b|bb|[a-c]*)*$"},
        {"type": "string", "pattern": "^(a|b|ab){1,50}c{1,50}$"},
    ],
)  # fmt: skip
def test_b68_hard_schemas_compile_or_end_in_an_error_that_says_why(backend: GrammarBackend, schema: Any) -> None:
    if refusal(lambda: backend.check(GrammarSpec(form="json_schema", source=json.dumps(schema)))) is not None:
        return
    try:
        compiled = grammar(backend, "json_schema", schema)
    except GrammarError:
        return
    written(compiled.matcher(), [*(bytes([byte]) for byte in range(256)), b""], [256], random.Random(1), most=30)


@pytest.mark.model
@pytest.mark.parametrize(("name", "examples"), [("llguidance", 120), ("xgrammar", 60)])
def test_b73_what_the_masks_let_through_is_valid(
    name: str, examples: int, vocabulary: list[bytes], soak_factor: int
) -> None:
    """Random schemas, random tokens of the embedded model's vocabulary: the text parses, and keeps to the schema."""
    backend = make(name, vocabulary, (2,))
    # without `time`, of which it knows no zones
    formats = jsonschema.FormatChecker(("date", "ipv4", "ipv6", "uuid", "email"))
    counts = {"refused": 0, "valid": 0}

    @seed(5)
    @settings(
        max_examples=examples * soak_factor, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(schemas(), st.integers(0, 10**6))
    def walk(schema: Any, number: int) -> None:
        try:
            compiled = grammar(backend, "json_schema", schema)
        except GrammarError:
            counts["refused"] += 1
            return
        text = written(compiled.matcher(), vocabulary, (2,), random.Random(number))
        if text is None:
            return
        errors = [wrong.message for wrong in
                  jsonschema.Draft202012Validator(schema, format_checker=formats).iter_errors(json.loads(text))]  # fmt: skip
        assert not errors, f"{json.dumps(schema)} let {text!r} pass: {errors}"
        counts["valid"] += 1

    walk()
    assert counts["valid"] > examples // 5, counts
