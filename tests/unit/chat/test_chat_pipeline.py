"""From a chat to a request and its readers: template, tools, formats and reasoning together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs.chat import ChatRequest, TextRequest
from jackfield.hookspecs.loader import TokenizerFiles
from jackfield.managers.chat.choices import joined
from jackfield.managers.chat.pipeline import ChatPipeline, Prepared
from jackfield.managers.errors import RequestError
from jackfield.managers.requests.limits import ReplicaLimits
from jackfield.managers.template_manager import TemplateManager
from jackfield.managers.text.tokenizer import Tokenizer
from tests.unit.chat.fakes import CallParser, ThinkParser, function

PLAIN = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}A:{% endif %}"
FULL = """\
{%- for t in tools or [] %}{{ t.function.name }},{% endfor %}
{%- for m in messages %}{{ m.role }}:{{ m.content }}
{%- for c in m.tool_calls or [] %}({{ c.function.name }} {{ c.function.arguments.items() | list | length }}
{{- ' ' + c.function.arguments }}){% endfor %}{% if m.name %}={{ m.name }}{% endif %};{% endfor %}
{%- if add_generation_prompt %}A:{% if enable_thinking %}[think]{% endif %}{{ reasoning_effort or '' }}{% endif %}"""

HELLO = [{"role": "user", "content": "hi"}]
F, G = function("f"), function("g", strict=True)
LIMITS = ReplicaLimits(context_length=2000, total_slots=2000, page_size=1, vocab_size=256)
JSON_OBJECT = {"type": "json_object"}


def library() -> Library:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Library(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def tokenizer(template: str = FULL) -> tuple[TokenizerFiles, Tokenizer]:
    files = TokenizerFiles(tokenizer_json=library().to_str().encode(), chat_template=template)
    return files, Tokenizer.from_files(files)


def pipeline(template: str = FULL, *, parsers: bool = True, **args: Any) -> ChatPipeline:
    files, text = tokenizer(template)
    return ChatPipeline(
        templates=TemplateManager(files, None, text),
        limits=LIMITS,
        args=ServerArgs(**args),
        reasoning=ThinkParser() if parsers else None,
        tool_calls=CallParser() if parsers else None,
    )


def prepared(*, template: str = FULL, parsers: bool = True, **fields: Any) -> Prepared:
    return pipeline(template, parsers=parsers).chat(ChatRequest(**{"messages": HELLO, **fields}))


def prompt(found: Prepared) -> str:
    ids: Any = found.request.input_ids
    return tokenizer()[1].decode(ids)


def sampling(found: Prepared) -> dict[str, Any]:
    given: Any = found.request.sampling_params
    return dict(given)


def read(found: Prepared, text: str) -> tuple[str, str, list[str]]:
    one = found.reading.reader(0)
    choice = joined(0, [*one.feed(text), *one.finish("stop")])
    return choice.content, choice.reasoning, [call.name for call in choice.tool_calls]


def refused(**fields: Any) -> RequestError:
    with pytest.raises(RequestError) as refusal:
        prepared(**fields)
    return refusal.value


def test_a_plain_chat() -> None:
    found = prepared(sampling={"temperature": 0.5}, logprobs=2, names={"max_new_tokens": "max_tokens"})
    assert prompt(found) == "user:hi;A:"
    assert sampling(found) == {"temperature": 0.5, "max_new_tokens": 1991}
    assert (found.request.return_logprob, found.request.top_logprobs_num) == (True, 2)
    assert found.names == {"input_ids": "messages", "max_new_tokens": "max_tokens"}
    assert read(found, "<f{}>") == ("<f{}>", "", [])


def test_a_developer_is_the_system_and_history_reaches_the_template() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "developer", "content": "D"},
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "3"},
    ]
    assert prompt(prepared(messages=messages)) == 'system:D;user:hi;assistant:(f 1 {"a": 1});tool:3=f;A:'


def test_auto_tools_are_shown_and_read_and_bind_nothing() -> None:
    found = prepared(tools=[F, function("h")])
    assert prompt(found) == "f,h,user:hi;A:"
    assert sampling(found)["skip_special_tokens"] is False
    assert not {"regex", "ebnf", "json_schema"} & sampling(found).keys()
    assert read(found, "[think]x[/think]a<h{}>") == ("a", "x", ["h"])


def test_none_shows_and_reads_nothing() -> None:
    found = prepared(tools=[F], tool_choice="none", response_format=JSON_OBJECT)
    assert prompt(found) == "user:hi;A:"
    assert sampling(found)["json_schema"] == '{"type":"object"}'
    assert found.names["json_schema"] == "response_format"
    assert read(found, "<f{}>") == ("<f{}>", "", [])


@pytest.mark.parametrize(
    ("fields", "source"),
    [
        ({"tool_choice": "required"}, ("regex", "2 required True")),
        ({"tool_choice": "required", "parallel_tool_calls": False}, ("regex", "2 required False")),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, ("regex", "1 required False")),
        ({"tool_choice": "required", "response_format": JSON_OBJECT}, ("regex", "2 required True")),
        ({}, ("ebnf", "2 free True")),
    ],
)
def test_b31_required_and_strict_calls_are_bound_in_the_models_own_format(fields: Any, source: tuple[str, str]) -> None:
    found = prepared(tools=[F, G], **fields)
    assert sampling(found)[source[0]] == source[1]
    assert found.names[source[0]] == "tools"
    assert read(found, "<f{}>") == ("", "", ["f"])


def test_b31_required_calls_without_a_parser_are_a_plain_list() -> None:
    found = prepared(tools=[F], tool_choice="required", parsers=False)
    assert json.loads(sampling(found)["json_schema"])["items"]["properties"]["name"] == {"const": "f"}
    assert read(found, '[{"name": "f", "arguments": {}}]') == ("", "", ["f"])
    assert "skip_special_tokens" not in sampling(found)


def test_a_template_that_knows_no_tools_is_told_of_them() -> None:
    found = prepared(tools=[F], template=PLAIN)
    assert prompt(found).startswith("system:You may call")
    assert '{"name":"f","description":""' in prompt(found)
    both = prepared(tools=[F], template=PLAIN, messages=[{"role": "system", "content": "S"}, *HELLO])
    assert prompt(both).startswith("system:S\n\nYou may call")
    parts = "{% for m in messages %}{% for p in m.content %}{{ p.text }}|{% endfor %}{% endfor %}"
    assert prompt(prepared(tools=[F], template=parts)).startswith("You may call")


def test_a_grammar_begins_behind_reasoning_that_the_prompt_opens() -> None:
    opened = prepared(template_kwargs={"enable_thinking": True}, response_format=JSON_OBJECT)
    assert prompt(opened) == "user:hi;A:[think]"
    assert tokenizer()[1].decode(sampling(opened)["grammar_after"]) == "[/think]"
    assert read(opened, "x[/think]{}") == ("{}", "x", [])
    assert "grammar_after" not in sampling(prepared(response_format=JSON_OBJECT))
    assert "grammar_after" in sampling(prepared(reasoning=True, sampling={"regex": "a"}))


def test_reasoning_is_switched_by_the_templates_own_variable() -> None:
    assert prompt(prepared(reasoning=True)).endswith("A:[think]")
    assert prompt(prepared(reasoning_effort="high")).endswith("A:high")
    assert prompt(prepared(reasoning_effort="none", reasoning=None)).endswith("A:")
    # What a request says of a variable by its name goes before.
    assert prompt(prepared(reasoning_effort="none", template_kwargs={"enable_thinking": True})).endswith("[think]")


def test_an_answer_that_goes_on_with_a_message_has_no_reasoning_of_its_own() -> None:
    messages = [*HELLO, {"role": "assistant", "content": "so"}]
    found = prepared(messages=messages, continue_final_message=True)
    assert prompt(found) == "user:hi;assistant:so"
    assert read(found, "[think]x[/think]") == ("[think]x[/think]", "", [])


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": "hi"}, "messages"),
    ({"messages": [5]}, "messages[0]"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/"}}]}]},
     "messages[0].content[0].type"),
    ({"tools": [F], "response_format": JSON_OBJECT}, "response_format"),
    ({"tools": [F], "parsers": False}, "tools"),
    ({"tools": [F] * 5000}, "tools"),
    ({"tools": [function("f", parameters={"description": "x" * 10**6})]}, "tools"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"description": "x" * 10**6}}}},
     "response_format"),
    ({"response_format": JSON_OBJECT, "sampling": {"regex": "a"}}, "regex"),
    ({"tools": [F], "tool_choice": "required", "sampling": {"json_schema": "{}"}}, "json_schema"),
    ({"reasoning_effort": "very high"}, "reasoning_effort"),
    ({"reasoning_effort": 5}, "reasoning_effort"),
    ({"template_kwargs": {"tokenize": True}}, "chat_template_kwargs"),
    ({"template_kwargs": {"thinking": [1]}}, "chat_template_kwargs.thinking"),
    ({"template_kwargs": {"thinking": "x" * 5000}}, "chat_template_kwargs"),
    ({"messages": [{"role": "user", "content": "x" * 3000}]}, "input_ids"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_b83_b86_what_is_refused_names_the_field(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields).param == param


def test_a_plain_text() -> None:
    found = pipeline().text(TextRequest(prompt="hi", sampling={"max_new_tokens": 3}, logprobs=0), rid="r", call_id="c")
    assert (found.request.prompt, found.request.input_ids, found.request.rid, found.request.call_id) == (
        "hi",
        None,
        "r",
        "c",
    )
    assert found.reading.scored
    assert read(found, "[think]<f{}>") == ("[think]<f{}>", "", [])
    assert pipeline().text(TextRequest(prompt=(1, 2))).request.input_ids == [1, 2]


def test_the_prompt_alone_is_the_same() -> None:
    request = ChatRequest(messages=HELLO, tools=[F])
    assert pipeline().prompt_ids(request) == pipeline().chat(request).request.input_ids
