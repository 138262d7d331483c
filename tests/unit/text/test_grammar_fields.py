"""The fields that bind an answer to a grammar: what becomes a spec, and what is refused before anything looks into it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.hookspecs import GRAMMAR_FORMS, GrammarBackend, GrammarError, GrammarSpec
from jackfield.ipc.messages import SamplingParams
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.grammar import CHECK_FAILED, Grammars
from jackfield.managers.fields.sampling_params import check_defaults, make_sampling_params

VOCAB = 100


class Noting(GrammarBackend):
    """Takes everything but the keyword `uniqueItems`; fails at `sick`."""

    def __init__(self) -> None:
        self.seen: list[GrammarSpec] = []

    def check(self, spec: GrammarSpec) -> None:
        self.seen.append(spec)
        if "uniqueItems" in spec.source:
            raise GrammarError("uniqueItems is not supported", keyword="/properties/a/uniqueItems")
        if spec.source == "sick":
            raise ValueError("internals")

    def compile(self, spec: GrammarSpec) -> bytes:
        raise AssertionError("the main process compiles nothing")

    load: Any = compile


def made(given: dict[str, Any]) -> SamplingParams:
    grammars = Grammars(backend=Noting())
    return make_sampling_params(given, defaults={}, vocab_size=VOCAB, grammars=grammars)


def refused(given: dict[str, Any]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        made(given)
    return caught.value


def test_each_form_becomes_a_spec() -> None:
    sources = {
        "json_schema": '{"type":"object"}',
        "regex": "a+",
        "ebnf": 'root ::= "a"',
        "structural_tag": '{"type":"x"}',
    }
    assert set(sources) == set(GRAMMAR_FORMS)
    for form, source in sources.items():
        assert made({form: source}).grammar == GrammarSpec(form=form, source=source)
    assert made(dict.fromkeys(GRAMMAR_FORMS)).grammar is None


def test_equal_schemas_are_one_spec_however_they_are_sent() -> None:
    """Else each way of writing it would be compiled again; the order of keys is the order of the answer, and stays."""
    ways: list[Any] = ['{"const": "\\u00e9",  "a": [1]}', {"const": "é", "a": [1]}, '{"const":"é","a":[1]}']
    assert {made({"json_schema": way}).grammar for way in ways} == {
        GrammarSpec(form="json_schema", source='{"const":"é","a":[1]}')
    }
    assert made({"json_schema": '{"a": [1], "const": "é"}'}).grammar != made({"json_schema": ways[0]}).grammar


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"regex": "a", "json_schema": "{}"}, "regex"),
        ({"regex": "a", "ebnf": "b"}, "ebnf"),
        ({"regex": ""}, "regex"),
        ({"regex": 5}, "regex"),
        ({"regex": {"a": 1}}, "regex"),
        ({"regex": "\ud800"}, "regex"),
        ({"json_schema": "{"}, "json_schema"),
        ({"json_schema": "[]"}, "json_schema"),
        ({"json_schema": []}, "json_schema"),
        ({"json_schema": True}, "json_schema"),
        ({"json_schema": '{"a": 1, "a": 2}'}, "json_schema"),
        ({"json_schema": '{"a": NaN}'}, "json_schema"),
        ({"json_schema": {"a": float("inf")}}, "json_schema"),
        ({"json_schema": '{"a": 1e999}'}, "json_schema"),
        ({"json_schema": '{"a": ' + "9" * 5000 + "}"}, "json_schema"),
        ({"json_schema": '{"a": "\\ud800"}'}, "json_schema"),
        ({"json_schema": {"a": b"x"}}, "json_schema"),
        ({"structural_tag": "x"}, "structural_tag"),
        ({"grammar_after": [1]}, "grammar_after"),
        ({"regex": "a", "grammar_after": [VOCAB]}, "grammar_after"),
        ({"regex": "a", "grammar_after": "ab"}, "grammar_after"),
        ({"regex": "a", "grammar_after": [1] * 65}, "grammar_after"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_b68_what_is_no_grammar_is_refused_by_name(given: dict[str, Any], param: str) -> None:
    error = refused(given)
    assert (error.param, error.status_code) == (param, 400)
    assert param in error.message
    assert len(error.message) < 400


@pytest.mark.parametrize("form", ["regex", "ebnf", "json_schema"])
def test_b68_size_and_depth_are_checked_first(form: str) -> None:
    """A megabyte, or a thousand brackets, never reach a parser."""
    assert "--max-schema-bytes" in refused({form: "x" * 2**20}).message
    opening = '{"a":' if form == "json_schema" else "("
    closing = "}" if form == "json_schema" else ")"
    inner = "1" if form == "json_schema" else "a"
    assert "--max-schema-depth" in refused({form: opening * 33 + inner + closing * 33}).message
    assert made({form: opening * 32 + inner + closing * 32}).grammar is not None
    assert "--max-schema-depth" in refused({form: "[" * 60_000}).message


def test_b68_an_object_is_measured_too() -> None:
    nested: dict[str, Any] = {}
    for _ in range(5000):  # more than Python recurses
        nested = {"a": nested}
    assert "--max-schema-depth" in refused({"json_schema": nested}).message


def test_brackets_in_texts_do_not_nest() -> None:
    assert made({"json_schema": json.dumps({"const": "[" * 50 + '"' + "{" * 50})}).grammar is not None
    assert made({"regex": r"\(" * 50}).grammar is not None
    assert made({"ebnf": 'root ::= "' + "(" * 50 + '"'}).grammar is not None


def test_what_the_backend_refuses_names_its_place() -> None:
    error = refused({"json_schema": {"properties": {"a": {"uniqueItems": True}}}})
    assert error.param == "json_schema"
    assert error.message == "json_schema: uniqueItems is not supported (at /properties/a/uniqueItems)"


def test_a_backend_that_fails_is_told_of_and_shows_no_internals() -> None:
    faults: list[BaseException] = []
    grammars = Grammars(backend=Noting(), fault=faults.append)
    with pytest.raises(RequestError) as caught:
        make_sampling_params({"regex": "sick"}, defaults={}, vocab_size=VOCAB, grammars=grammars)
    assert (caught.value.status_code, caught.value.message) == (500, CHECK_FAILED)
    assert [str(fault) for fault in faults] == ["internals"]


@pytest.mark.parametrize("form", GRAMMAR_FORMS)
def test_without_a_backend_each_form_is_refused(form: str) -> None:
    with pytest.raises(RequestError, match="--grammar-backend") as caught:
        make_sampling_params({form: "{}"}, defaults={}, vocab_size=VOCAB, unknown="ignore")
    assert (caught.value.param, caught.value.code) == (form, "not_supported")


def test_a_grammar_is_no_default() -> None:
    with pytest.raises(ConfigurationError, match="regex is a client's to ask for"):
        check_defaults({"regex": "a"})


def test_where_it_begins() -> None:
    params = made({"regex": "a", "grammar_after": (7, 7, 9)})
    assert params.grammar_after == (7, 7, 9)
