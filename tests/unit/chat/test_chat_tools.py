"""Tools, the choice among them, calls of earlier turns (B18) and response formats: what is taken, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jackfield.managers.chat.history import MAX_DEPTH, Arguments, message_fields
from jackfield.managers.chat.response_format import ANY_OBJECT, response_grammar
from jackfield.managers.chat.tools import tool_use
from jackfield.managers.errors import RequestError
from tests.unit.chat.fakes import function

F, G = function("f", parameters={"type": "object"}), function("g", description="G", strict=True)
NAMED = {"type": "function", "function": {"name": "g"}}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, (["f", "g"], ["f", "g"], False, True)),
        ("auto", (["f", "g"], ["f", "g"], False, True)),
        ("required", (["f", "g"], ["f", "g"], True, True)),
        ("none", ([], [], False, True)),
        (NAMED, (["f", "g"], ["g"], True, False)),
        ({"type": "function", "name": "g"}, (["f", "g"], ["g"], True, False)),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}},
            (["g"], ["g"], True, True),
        ),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [F]}}, (["f"], ["f"], False, True)),
    ],
)
def test_what_a_choice_means(choice: Any, expected: Any) -> None:
    use = tool_use([F, G], choice, most=2)
    shown = [tool["function"]["name"] for tool in use.shown]
    assert (shown, [tool.name for tool in use.callable], use.required, use.parallel) == expected


def test_what_tools_become() -> None:
    use = tool_use([F, G], None, parallel=False, most=2)
    assert [tool.strict for tool in use.callable] == [False, True]
    assert not use.parallel
    assert use.shown[1]["function"] == {
        "name": "g",
        "description": "G",
        "parameters": {"type": "object", "properties": {}},
    }
    empty: list[Any] = [None, [], ()]
    for nothing in empty:
        assert tool_use(nothing, "auto", most=2) == tool_use([F], "none", most=2)


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        ("f", None, "tools"),
        ([F, G, F], None, "tools"),
        ([F, F], None, "tools[1].function.name"),
        ([F, 5], None, "tools[1]"),
        ([{"type": "web_search"}], None, "tools[0].type"),
        ([{"type": "function"}], None, "tools[0].function"),
        ([function("")], None, "tools[0].function.name"),
        ([function("a b")], None, "tools[0].function.name"),
        ([function("x" * 129)], None, "tools[0].function.name"),
        ([function("f", parameters=[])], None, "tools[0].function.parameters"),
        ([function("f", description=5)], None, "tools[0].function.description"),
        ([function("f", description="\ud800")], None, "tools[0].function.description"),
        ([function("f", strict="yes")], None, "tools[0].function.strict"),
        ([F], "some", "tool_choice"),
        ([F], 5, "tool_choice"),
        ([F], {"type": "function"}, "tool_choice"),
        ([F], NAMED, "tool_choice"),
        ([F], {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, "tool_choice"),
        ([F], {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [5]}},
         "tool_choice.allowed_tools.tools[0]"),
        ([], "required", "tool_choice"),
        (None, NAMED, "tool_choice"),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_place(tools: Any, choice: Any, param: str) -> None:
    with pytest.raises(RequestError) as refusal:
        tool_use(tools, choice, most=2)
    assert refusal.value.param == param
    with pytest.raises(RequestError):
        tool_use([F], None, parallel=1, most=2)


def called(arguments: Any, **more: Any) -> list[dict[str, Any]]:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}, **more}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]


@pytest.mark.parametrize(
    ("given", "read"), [("{}", {}), ("", {}), (None, {}), ('{"a":1}', {"a": 1}), ({"a": "é"}, {"a": "é"})]
)
def test_b18_arguments_become_a_mapping_and_results_get_their_name(given: Any, read: Any) -> None:
    assistant, tool = message_fields(called(given))
    assert assistant["tool_calls"][0] == {"id": "c1", "type": "function", "function": {"name": "f", "arguments": read}}
    assert tool == {"tool_call_id": "c1", "name": "f"}


@pytest.mark.parametrize("bad", ["{", "[]", "5", '"x"', "null", [1], 5, "[" * 5000, '{"a":' * 100 + "1" + "}" * 100])
def test_b18_what_is_no_object_is_refused_with_its_place(bad: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        message_fields([{"role": "user"}, *called(bad)])
    assert refusal.value.param == "messages[1].tool_calls[0].function.arguments"


def test_depth_is_counted() -> None:
    for depth, taken in ((MAX_DEPTH, True), (MAX_DEPTH + 1, False)):
        arguments = '{"a":' * depth + "{}" + "}" * depth
        if taken:
            message_fields(called(arguments))
            continue
        with pytest.raises(RequestError, match="nested deeper"):
            message_fields(called(arguments))


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user", "tool_calls": [1]}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": "x"}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": [1]}, "messages[0].tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{"type": "custom"}]}, "messages[0].tool_calls[0].type"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "messages[0].tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": [{"id": 5, "function": {"name": "f"}}]}, "messages[0].tool_calls[0].id"),
        ({"role": "assistant", "function_call": {"name": "f"}}, "messages[0].function_call"),
        ({"role": "tool", "tool_call_id": 5}, "messages[0].tool_call_id"),
        ({"role": "user", "name": "\ud800"}, "messages[0].name"),
    ],
)
def test_malformed_history_names_the_place(message: Any, param: str) -> None:
    with pytest.raises(RequestError) as refusal:
        message_fields([message])
    assert refusal.value.param == param


def test_other_fields_of_a_message_do_not_reach_the_template() -> None:
    assert message_fields([{"role": "user", "content": "x", "id": "m", "bogus": 1, "name": "Ann"}]) == [{}]
    assert message_fields([{"role": "tool", "content": "x", "name": "f"}]) == [{"name": "f"}]


def test_arguments_are_their_text_where_a_template_joins_them() -> None:
    arguments = Arguments(a="é")
    assert "x" + arguments + "y" == f"x{arguments}y" == 'x{"a": "é"}y'
    assert dict(arguments.items()) == {"a": "é"}
    with pytest.raises(TypeError):
        arguments + 5


def test_response_formats() -> None:
    assert response_grammar(None) is response_grammar({"type": "text"}) is None
    assert response_grammar({"type": "json_object"}) == ANY_OBJECT
    schema = {"type": "object", "properties": {"b": {}, "a": {"enum": ["é"]}}}
    for strict in (None, False, True):
        spec = response_grammar(
            {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": strict}}
        )
        assert spec is not None
        assert spec.form == "json_schema"
        assert list(json.loads(spec.source)["properties"]) == ["b", "a"]
    tag = response_grammar({"type": "structural_tag", "format": {}})
    assert tag is not None
    assert (tag.form, json.loads(tag.source)["format"]) == ("structural_tag", {})


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ("json", "response_format"),
        ({}, "response_format.type"),
        ({"type": "xml"}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, "response_format.json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"schema": "x"}}, "response_format.json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"schema": {}, "strict": 1}}, "response_format.json_schema.strict"),
    ],
)
def test_b68_malformed_response_formats_name_the_place(given: Any, param: str) -> None:
    with pytest.raises(RequestError) as refusal:
        response_grammar(given)
    assert refusal.value.param == param
