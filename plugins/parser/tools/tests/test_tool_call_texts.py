"""Texts as models write them, in each format: whole, broken and cut off. Each is read in one piece, character by character and
cut at every place, and always gives the same.

Many restate what other servers were told as faults; the reports are named behind them.
"""

from __future__ import annotations

import json

import pytest

from jackfield.hookspecs import CallArguments, CallBegin, Content, Piece, Tool, ToolCallParser
from jackfield.testing.conformance.parser import joined, read
from jackfield_parser_tools.deepseek_format import DeepSeekParser
from jackfield_parser_tools.hermes_format import HermesParser
from jackfield_parser_tools.llama3_json_format import LlamaParser
from jackfield_parser_tools.mistral_format import MistralParser
from jackfield_parser_tools.pythonic_format import PythonicParser
from jackfield_parser_tools.qwen3_coder_format import QwenCoderParser

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "deep": {"type": "boolean"},
        "ratio": {"type": ["number", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"type": "object"},
        "any": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    },
}
TOOLS = [Tool(name="f"), Tool(name="get_weather", parameters=SCHEMA), Tool(name="ns.sub-tool")]
FORMATS: dict[str, ToolCallParser] = {
    "hermes": HermesParser(),
    "llama": LlamaParser(),
    "mistral": MistralParser(),
    "deepseek": DeepSeekParser(),
    "qwen": QwenCoderParser(),
    "pythonic": PythonicParser(),
}
D = {
    "cb": "<｜tool▁calls▁begin｜>",
    "ce": "<｜tool▁calls▁end｜>",
    "b": "<｜tool▁call▁begin｜>",
    "e": "<｜tool▁call▁end｜>",
}
SEP = "<｜tool▁sep｜>"


def call(name: str, arguments: str = "{}") -> list[Piece]:
    return [CallBegin(name=name), CallArguments(text=arguments)]


def text(content: str) -> list[Piece]:
    return [Content(text=content)]


CASES: list[tuple[str, str, list[Piece] | None]] = [
    # hermes
    ("hermes", "", []),
    ("hermes", "2 < 3", None),
    (
        "hermes",
        'Hi.\n<tool_call>\n{"name": "f", "arguments": {"a": "}</tool_call>\\"", "b": [1, {"c": 2}]}}\n</tool_call>\n'
        '<tool_call>{"name":"get_weather"}</tool_call>\nBye',
        [
            *text("Hi.\n"),
            *call("f", '{"a": "}</tool_call>\\"", "b": [1, {"c": 2}]}'),
            *call("get_weather"),
            *text("Bye"),
        ],
    ),
    # arguments first; two objects between two tags; JSON within a string, as OpenAI's API has it
    (
        "hermes",
        '<tool_call>{"arguments": {"x": 1}, "name": "f"}{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
        [*call("f", '{"x": 1}'), *call("f", '{"a": 1}')],
    ),
    # a tool without parameters, empty and null (vllm#28806), and a call behind it keeps its own (b32)
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {}}</tool_call><tool_call>{"name": "f", "arguments": null}</tool_call>'
        '<tool_call>{"name": "get_weather", "arguments": {"city": "A"}}</tool_call>',
        [*call("f"), *call("f"), *call("get_weather", '{"city": "A"}')],
    ),
    # nested lists of objects (vllm#21360), a lone brace within a string (vllm#21544), escapes
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"n": [{"a": [{"b": 1}]}]}}</tool_call>',
        call("f", '{"n": [{"a": [{"b": 1}]}]}'),
    ),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"c": "mkdir -p t/{a,b"}}</tool_call>',
        call("f", '{"c": "mkdir -p t/{a,b"}'),
    ),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"c": "\\\\"}}</tool_call>!',
        [*call("f", '{"c": "\\\\"}'), *text("!")],
    ),
    ("hermes", '<tool_call>{"n\\u0061me": "\\u0066", "arguments": {}}</tool_call>', call("f")),
    # prose about the tag is not held back for ever (club-3090#72)
    ("hermes", "Write <tool_call> and then the JSON.", None),
    ("hermes", "`<tool_call>{...}</tool_call>`", None),
    ("hermes", '<tool_call>{"name": "no", "arguments": {"t": "<tool_call>"}}</tool_call> x', None),
    ("hermes", "<tool_call>{'name': 'f'}</tool_call>", None),
    ("hermes", '<tool_call>{"name": 3}</tool_call>', None),
    ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', None),
    ("hermes", '<tool_call>{"name": "f", "arguments": "not json"}</tool_call>', None),
    ("hermes", '<tool_call>[{"name": "f"}]</tool_call>', None),
    ("hermes", "<<tool_call", None),
    ("hermes", '<tool_call><tool_call>{"name": "f"}', [*text("<tool_call>"), *call("f")]),
    # cut off (b34): in the tag, in the name, in the arguments, before the end
    ("hermes", "<tool_c", None),
    ("hermes", '<tool_call>{"name": "get_w', None),
    ("hermes", '<tool_call>{"name": "f", "argu', None),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "b', call("f", '{"a": "b')),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}', call("f", '{"a": 1}')),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}\n</tool_', [*call("f", '{"a": 1}'), *text("</tool_")]),
    # broken arguments are given as far as they go
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1</tool_call>more', [*call("f", '{"a": 1'), *text("more")]),
    # llama3-json
    ("llama", '{"name": "f", "parameters": {"a": 1}}', call("f", '{"a": 1}')),
    ("llama", ' {"type": "function", "name": "f", "parameters": {}}', call("f")),
    (
        "llama",
        '<|python_tag|>{"name": "f", "parameters": {"a": ";"}}; {"name": "f", "parameters": {}}',
        [*call("f", '{"a": ";"}'), *call("f")],
    ),
    (
        "llama",
        'Let me see.<|python_tag|>{"name": "f", "arguments": {"a": {}}}',
        [*text("Let me see."), *call("f", '{"a": {}}')],
    ),
    (
        "llama",
        '<|python_start|>{"name": "f", "parameters": {}}<|python_end|>\nDone',
        [*call("f"), *text("Done")],
    ),
    # an answer in JSON that is no call, and a call in the middle of a text
    ("llama", '{"answer": {"name": "f", "parameters": {}}}', None),
    ("llama", '{"name": "Alice", "parameters": {}}', None),
    ("llama", '{"name": "f"', None),
    ("llama", 'Like {"name": "f", "parameters": {}}', None),
    ("llama", '<|python_tag|>brave_search.call(query="x")', None),
    # mistral
    (
        "mistral",
        '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "]"}}, {"name": "f", "arguments": {}}]',
        [*call("f", '{"a": "]"}'), *call("f")],
    ),
    ("mistral", '[TOOL_CALLS][{"arguments": {"n": 3}, "name": "f"}]', call("f", '{"n": 3}')),
    (
        "mistral",
        'Hm [TOOL_CALLS]f[ARGS]{"a": "[ARGS]"}[TOOL_CALLS]ns.sub-tool[ARGS]{}',
        [*text("Hm "), *call("f", '{"a": "[ARGS]"}'), *call("ns.sub-tool")],
    ),
    (
        "mistral",
        '[TOOL_CALLS]f[CALL_ID]a1B2c3D4e[ARGS]{"a": 1}',
        [CallBegin(name="f", id="a1B2c3D4e"), CallArguments(text='{"a": 1}')],
    ),
    ("mistral", '[TOOL_CALLS]f{"a": 1}', call("f", '{"a": 1}')),  # without [ARGS] (vllm#20028)
    ("mistral", '[TOOL_CALLS]no[ARGS]{"a": "[TOOL_CALLS]f[ARGS]{}"}', None),
    ("mistral", "[TOOL_CALLS] some words", None),
    ("mistral", "[TOOL_CALLS]f[OTHER]{}", None),
    ("mistral", "[TOOL", None),
    ("mistral", "[TOOL_CALLS]f[AR", None),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"a": ', call("f", '{"a": ')),
    # deepseek: V3 and R1, then V3.1
    (
        "deepseek",
        f'Hm.{D["cb"]}{D["b"]}function{SEP}f\n```json\n{{"a": "```"}}\n```{D["e"]}\n'
        f"{D['b']}function{SEP}get_weather\n```json\n{{}}\n```{D['e']}{D['ce']}",
        [*text("Hm."), *call("f", '{"a": "```"}'), *call("get_weather")],
    ),
    (
        "deepseek",
        f'{D["cb"]}{D["b"]}f{SEP}{{"a": 1}}{D["e"]}{D["b"]}f{SEP}{{}}{D["e"]}{D["ce"]}',
        [*call("f", '{"a": 1}'), *call("f")],
    ),
    ("deepseek", f'{D["b"]}f{SEP}{{"a": 1}}{D["e"]}', call("f", '{"a": 1}')),  # without the outer mark, as R1 may
    ("deepseek", f'{D["cb"]}{D["b"]}no{SEP}{{"a": 1}}{D["e"]}{D["ce"]}', None),
    ("deepseek", f"{D['cb']} and more", None),
    ("deepseek", f"{D['cb']}{D['b']}function{SEP}f\n```js", None),
    ("deepseek", f'{D["cb"]}{D["b"]}function{SEP}f\n```json\n{{"a', call("f", '{"a')),
    # qwen3-coder
    (
        "qwen",
        'Now:\n<tool_call>\n<function=get_weather>\n<parameter=city>\nSão "Paulo"\n\nline\n</parameter>\n'
        "<parameter=days>\n3\n</parameter>\n"
        "<parameter=deep>\nTrue\n</parameter>\n<parameter=ratio>\nNone\n</parameter>\n"
        '<parameter=tags>\n["a", "b"]\n</parameter>\n'
        "</function>\n</tool_call>",
        [
            *text("Now:\n"),
            *call(
                "get_weather",
                '{"city": "São \\"Paulo\\"\\n\\nline", "days": 3, "deep": true, "ratio": null, "tags": ["a", "b"]}',
            ),
        ],
    ),
    ("qwen", "<function=f>\n</function>", call("f")),  # without the outer tag
    # without a closing tag of the parameter
    (
        "qwen",
        "<tool_call><function=get_weather><parameter=city>A<parameter=days>2</function></tool_call>",
        call("get_weather", '{"city": "A", "days": 2}'),
    ),
    # a value that looks like tags, one that is not of its type, one without a schema
    (
        "qwen",
        "<function=get_weather><parameter=city>a < b </c> <parameter</parameter></function>",
        call("get_weather", '{"city": "a < b </c> <parameter"}'),
    ),
    (
        "qwen",
        "<function=get_weather><parameter=days>many</parameter><parameter=x>1</parameter></function>",
        call("get_weather", '{"days": "many", "x": "1"}'),
    ),
    ("qwen", "<function=get_weather><parameter=any>7</parameter></function>", call("get_weather", '{"any": 7}')),
    (
        "qwen",
        "<function=get_weather><parameter=days>NaN</parameter></function>",
        call("get_weather", '{"days": "NaN"}'),
    ),
    (
        "qwen",
        '<function=get_weather><parameter=where>\n{"a":\n 1}\n</parameter></function>',
        call("get_weather", '{"where": {"a":\n 1}}'),
    ),
    ("qwen", "<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>", call("f", '{"a": "1"}')),
    (
        "qwen",
        "<tool_call><function=f></function></tool_call>\n<tool_call><function=f><parameter=a>x</parameter></function></tool_call>.",
        [*call("f"), *call("f", '{"a": "x"}'), *text(".")],
    ),
    ("qwen", "<tool_call>\n<function=no>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>", None),
    ("qwen", "Use <tool_call> for that, or <function=", None),
    ("qwen", "<function=get_weather><parameter=city>\nlong te", call("get_weather", '{"city": "long te')),
    ("qwen", "<function=get_weather><parameter=da", [CallBegin(name="get_weather")]),
    # pythonic
    (
        "pythonic",
        '[f(a=1, b=\'it\\\'s "x"\', c=[True, None, -2.5e3], d={\'k\': {"l": (1,)}, 2: []}), get_weather(city="Zürich\\n")]',
        [
            *call("f", '{"a": 1, "b": "it\'s \\"x\\"", "c": [true, null, -2.5e3], "d": {"k": {"l": [1]}, "2": []}}'),
            *call("get_weather", '{"city": "Zürich\\n"}'),
        ],
    ),
    ("pythonic", "<|python_start|>[ f() ]<|python_end|>", call("f")),
    (
        "pythonic",
        "Hm.<|tool_call_start|>[f(a='[TOOL]')]<|tool_call_end|>Done",
        [*text("Hm."), *call("f", '{"a": "[TOOL]"}'), *text("Done")],
    ),
    ("pythonic", "[ns.sub-tool(a=1_000)]", call("ns.sub-tool", '{"a": 1000}')),
    ("pythonic", "[f(a='\\ud800 \\x41')]", call("f", '{"a": "\\ud800 A"}')),
    ("pythonic", "[1, 2]", None),
    ("pythonic", "[f]", None),
    ("pythonic", "[no(a=1)]", None),
    ("pythonic", "[f(1)]", None),
    ("pythonic", "f(a=1)", None),
    ("pythonic", "As in [f(a=1)]", None),
    ("pythonic", "[f(a=", call("f", '{"a": ')),
    ("pythonic", "[f(a='x", call("f", '{"a": "x')),
]


@pytest.mark.parametrize(("form", "written", "pieces"), CASES)
def test_b32_b34_what_is_read(form: str, written: str, pieces: list[Piece] | None) -> None:
    """None: all of it is content, as written."""
    parser = FORMATS[form]
    expected = text(written) if pieces is None else pieces
    assert joined(read(parser.stream(TOOLS), written)) == expected
    assert joined(read(parser.stream(TOOLS), *written)) == expected
    for place in range(len(written)):
        assert joined(read(parser.stream(TOOLS), written[:place], written[place:])) == expected


def test_arguments_come_as_they_are_written() -> None:
    """A long string is not kept until its end (sglang#27005, vllm#30439)."""
    beginnings = {
        "hermes": '<tool_call>{"name": "f", "arguments": {"a": "',
        "llama": '{"name": "f", "parameters": {"a": "',
        "mistral": '[TOOL_CALLS]f[ARGS]{"a": "',
        "deepseek": f'{D["b"]}f{SEP}{{"a": "',
        "qwen": "<function=f><parameter=a>",
        "pythonic": "[f(a='",
    }
    for form, beginning in beginnings.items():
        stream = FORMATS[form].stream(TOOLS)
        begun = stream.feed(beginning)
        assert CallBegin(name="f") in begun, form
        for character in "print(1)":
            assert stream.feed(character) == [CallArguments(text=character)], form


def test_half_of_a_surrogate_pair_stays_an_escape() -> None:
    """Text with one could not be sent."""
    written = '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"\\ud83d\\"}"}</tool_call>'
    _, arguments = joined(read(HermesParser().stream(TOOLS), written))
    assert arguments == CallArguments(text='{"a": "\\ud83d"}')
    arguments.text.encode()


def test_the_grammar_follows_the_chat_template() -> None:
    by_name = MistralParser("... [TOOL_CALLS] ... [ARGS] ...").grammar(TOOLS, required=True, parallel=True)
    fenced = DeepSeekParser("```json").grammar(TOOLS, required=False, parallel=True)
    assert by_name is not None
    assert fenced is not None
    assert json.loads(by_name.source)["format"]["tags"][0]["begin"] == "[TOOL_CALLS]f[ARGS]"
    assert json.loads(fenced.source)["format"]["tags"][0]["end"] == "\n```<｜tool▁call▁end｜>"
