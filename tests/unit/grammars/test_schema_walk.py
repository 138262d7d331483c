"""Schemas are checked for shape before any backend sees them: what is malformed is refused with its JSON pointer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.grammars.schema_keywords import KEYWORDS
from jackfield.grammars.schema_rules import SchemaRules, check_schema, rewrite
from jackfield.hookspecs import GrammarError
from tests.unit.grammars.backends import refusal as message

ALL = SchemaRules(backend="any", keywords=frozenset(KEYWORDS))


def refusal(schema: Any, rules: SchemaRules = ALL) -> GrammarError:
    source = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(GrammarError) as caught:
        check_schema(source, rules)
    return caught.value


@pytest.mark.parametrize(
    ("schema", "pointer", "word"),
    [
        ({"type": "strng"}, "/type", "did you mean 'string'"),
        ({"type": []}, "/type", "one of"),
        ({"properties": {"a": "bar"}}, "/properties", "'a' is not"),
        ({"properties": {"a/b": {"minLength": -1}}}, "/properties/a~1b/minLength", "0 or more"),
        ({"items": [{}]}, "/items", "prefixItems"),
        ({"minLenght": 2}, "/minLenght", "did you mean 'minLength'"),
        ({"anyOf": [{}, {"enum": []}]}, "/anyOf/1/enum", "not empty"),
        ({"exclusiveMinimum": True}, "/exclusiveMinimum", "draft 4"),
        ({"multipleOf": 0}, "/multipleOf", "more than 0"),
        ({"const": 1e300}, "/const", "exactly"),
        ({"enum": [[12345678901234567890]]}, "/enum", "exactly"),
        ({"required": ["a", "a"]}, "/required", "different strings"),
        ({"pattern": "((("}, "JSON schema, /pattern", "not closed"),
        ({"patternProperties": {"(": {}}}, "JSON schema, /patternProperties/(", "not closed"),
        ({"format": "colour"}, "/format", "date-time"),
        ({"$schema": "http://example.org/mine"}, "/$schema", "2020-12"),
        ({"items": {"$id": "x"}}, "/items/$id", "base"),
        ({"$ref": "http://example.org/x"}, "/$ref", "leads out"),
        ({"$ref": "#name"}, "/$ref", "leads out"),
        ({"$ref": "#/$defs/no", "$defs": {"a": {}}}, "/$ref", "no place"),
        ({"$ref": "#"}, "/", "itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {}]}}}, "/$defs/a/anyOf/0", "itself"),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "/", "no finite value"),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "/", "no finite value"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "/", "no finite value"),
        (False, "/", "no finite value"),
        ([], "/", "a schema is an object"),
        ("[", "", "is no JSON"),
        ('{"const": NaN}', "NaN", "no JSON"),
        ('{"type": "null", "type": "string"}', "type", "twice"),
        ('{"const": "\\ud800"}', "", "surrogate"),
        ("[" * 100_000, "", "cannot be read"),
        ("1" * 5000, "", "cannot be read"),
        ('{"items":' * 150 + "{}" + "}" * 150, None, "deep"),
    ],
)
def test_b68_what_is_malformed_is_named_with_its_place(schema: Any, pointer: str | None, word: str) -> None:
    error = refusal(schema)
    assert pointer is None or error.keyword == pointer
    assert word in error.message


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"title": "t", "description": "d", "default": 1, "examples": [1], "$comment": "c", "deprecated": True, "x-order": 1},
        {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "urn:x", "definitions": {"a": {"type": "null"}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}},
        {"properties": {"$ref": {"type": "string"}, "type": {"type": "null"}}},
        {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {}}},
    ],
)  # fmt: skip
def test_what_is_well_formed_passes(schema: Any) -> None:
    assert check_schema(json.dumps(schema), ALL) == schema


def test_a_keyword_that_the_backend_does_not_honour_is_named() -> None:
    rules = SchemaRules(backend="mine", keywords=frozenset({"type", "properties", "minLength", "enum"}), typed=True,
                        company={"enum": frozenset({"type"})})  # fmt: skip
    error = refusal({"properties": {"a": {"uniqueItems": True}}, "type": "object"}, rules)
    assert (error.keyword, "mine" in error.message) == ("/properties/a/uniqueItems", True)
    assert refusal({"minLength": 1}, rules).keyword == "/minLength"
    assert refusal({"type": "integer", "minLength": 1}, rules).keyword == "/minLength"
    assert refusal({"type": "string", "enum": ["a"], "minLength": 1}, rules).keyword == "/minLength"
    check_schema('{"type": ["null", "string"], "minLength": 1, "title": "t"}', rules)


def test_rewriting_drops_what_says_nothing_and_changes_inner_schemas_first() -> None:
    schema = {"title": "t", "x-y": 1, "items": {"description": "d", "type": "null"}, "const": {"title": 1}}
    seen: list[Any] = []

    def change(one: dict[str, Any]) -> dict[str, Any]:
        seen.append(dict(one))
        return one

    assert rewrite(schema, change) == {"items": {"type": "null"}, "const": {"title": 1}}
    assert seen[0] == {"type": "null"}


_JSON: Any = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["string", "#", "#/items", "a"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([*KEYWORDS, "title", "x"]), inner, max_size=4),
    ),
    max_leaves=8,
)


@given(_JSON)
def test_b68_any_json_is_a_schema_or_refused(schema: Any) -> None:
    assert message(lambda: check_schema(json.dumps(schema), ALL)) != ""
