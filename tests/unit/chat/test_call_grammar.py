"""How calls are bound: in the model's own format where the backend knows it, and never loosened where a tool is strict."""

from __future__ import annotations

import json

import pytest

from jackfield.hookspecs.grammar import CompiledGrammar, GrammarBackend, GrammarError, GrammarSpec
from jackfield.hookspecs.parser import Tool
from jackfield.managers.chat.call_grammar import kept, possible_calls, required_calls
from jackfield.managers.chat.plain_calls import PlainCalls
from jackfield.managers.chat.tools import ToolUse
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.grammar import Grammars
from tests.unit.chat.fakes import Calling, CallParser

ODD = {"type": "array", "uniqueItems": True}
LOOSE, STRICT, PLAIN = Tool(name="a", parameters=ODD), Tool(name="b", parameters=ODD, strict=True), Tool(name="c")


class OnlySchemas(GrammarBackend):
    """Knows JSON schemas without uniqueItems."""

    def check(self, spec: GrammarSpec) -> None:
        if spec.form != "json_schema" or "uniqueItems" in spec.source:
            raise GrammarError("not honoured", keyword="uniqueItems")

    def compile(self, spec: GrammarSpec) -> bytes:
        raise AssertionError("nothing is compiled here")

    def load(self, compiled: bytes) -> CompiledGrammar:
        raise AssertionError("nothing is loaded here")


class Broken(OnlySchemas):
    def check(self, spec: GrammarSpec) -> None:
        raise ValueError("broken")


SCHEMAS = Grammars(backend=OnlySchemas())


def test_only_schemas_that_nobody_asked_to_keep_are_left_out() -> None:
    assert [tool.parameters for tool in kept((LOOSE, STRICT, PLAIN), SCHEMAS)] == [{}, ODD, {}]
    assert kept((LOOSE, STRICT), Grammars()) == (LOOSE, STRICT)


def test_the_models_own_format_is_used_where_the_backend_takes_it() -> None:
    streams, grammar = required_calls(ToolUse(callable=(PLAIN,), required=True), CallParser(), Grammars())
    assert (grammar.form, type(streams())) == ("regex", Calling)
    for parser in (CallParser(), None):
        streams, grammar = required_calls(ToolUse(callable=(LOOSE,), required=True), parser, SCHEMAS)
        assert (grammar.form, type(streams())) == ("json_schema", PlainCalls)
        assert json.loads(grammar.source)["items"]["properties"]["arguments"] == {"type": "object"}
    _, grammar = required_calls(ToolUse(callable=(STRICT,), required=True), None, SCHEMAS)
    assert "uniqueItems" in grammar.source  # and so it will be refused, with the keyword


def test_free_text_is_bound_by_strict_tools_alone() -> None:
    assert possible_calls(ToolUse(callable=(PLAIN,)), CallParser(), SCHEMAS)[1] is None
    grammar = possible_calls(ToolUse(callable=(PLAIN, STRICT), parallel=False), CallParser(), SCHEMAS)[1]
    assert grammar == GrammarSpec(form="ebnf", source="2 free False")
    with pytest.raises(RequestError, match="--tool-call-parser"):
        possible_calls(ToolUse(callable=(PLAIN,)), None, SCHEMAS)

    class NoGrammar(CallParser):
        def grammar(self, tools: object, *, required: bool, parallel: bool) -> None:
            return None

    with pytest.raises(RequestError, match="strict"):
        possible_calls(ToolUse(callable=(STRICT,)), NoGrammar(), SCHEMAS)


def test_a_backend_that_fails_is_counted_and_the_refusal_left_to_the_check_of_the_field() -> None:
    faults: list[BaseException] = []
    assert Grammars(backend=Broken(), fault=faults.append).takes(GrammarSpec(form="regex", source="a"))
    assert [str(fault) for fault in faults] == ["broken"]
