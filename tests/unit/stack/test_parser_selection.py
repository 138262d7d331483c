"""Which parser serves: by name, by the marks of the chat template, or none; and that it says why."""

from __future__ import annotations

import pytest

from jackfield.stack.discovery.scan import discover
from jackfield.stack.selection.parsers import best_marks
from jackfield.stack.selection.resolution import Resolution
from tests.unit.stack.catalogues import catalogue, facts, reason, refused, resolved, row


def with_template(template: str, **args: object) -> Resolution:
    return resolved(model=facts(chat_template=template), **args)  # type: ignore[arg-type]


def serving(resolution: Resolution) -> dict[str, str | None]:
    stack = resolution.stack
    found = {part: stack.one("parser", part) for part in ("tool_calls", "reasoning")}
    return {part: None if plugin is None else plugin.name for part, plugin in found.items()}


def rule(resolution: Resolution, field: str) -> str:
    return next(change.rule for change in resolution.changes if change.field == field)


def test_the_chat_template_decides_and_the_reason_says_by_what() -> None:
    resolution = with_template("a <tool_call> b </think>")
    assert serving(resolution) == {"tool_calls": "hermes", "reasoning": "think"}
    assert rule(resolution, "tool_call_parser") == "the chat template has '<tool_call>'"
    assert (resolution.args.tool_call_parser, resolution.args.reasoning_parser) == ("hermes", "think")
    assert reason(resolution, "parser", "xml") == "the chat template has none of the marks of its format"


def test_the_most_specific_marks_win() -> None:
    resolution = with_template("<tool_call> <function=")
    assert serving(resolution) == {"tool_calls": "xml", "reasoning": None}
    assert reason(resolution, "parser", "hermes") == "'xml' knows more of the chat template than '<tool_call>'"
    assert best_marks((("a",), ("bb", "c"), ("a", "b")), "a bb c") == ("bb", "c")
    assert best_marks((("a", "x"),), "a bb c") is None


def test_no_mark_no_parser() -> None:
    resolution = with_template("plain")
    assert serving(resolution) == {"tool_calls": None, "reasoning": None}
    assert rule(resolution, "reasoning_parser") == "no parser of the reasoning knows the chat template's format"
    assert resolution.args.reasoning_parser == "none"
    assert rule(with_template(""), "tool_call_parser") == "the model has no chat template by which to know its format"


def test_none_and_a_name_go_before_the_template() -> None:
    resolution = with_template("<tool_call> </think>", tool_call_parser="xml", reasoning_parser="none")
    assert serving(resolution) == {"tool_calls": "xml", "reasoning": None}
    assert reason(resolution, "parser", "hermes") == "'xml' was named"
    assert reason(resolution, "parser", "think") == "--reasoning-parser none"
    assert not [change for change in resolution.changes if change.field.endswith("_parser")]


def test_a_parser_of_the_other_sort_is_refused_with_the_right_flag() -> None:
    message = refused(tool_call_parser="think")
    assert message.endswith("cannot serve here: it does not read tool calls: it is named by --reasoning-parser")
    assert "did you mean 'hermes'" in refused(tool_call_parser="hermess")


def test_without_a_tokenizer_there_is_no_text_to_read() -> None:
    resolution = with_template("", skip_tokenizer_init=True)
    assert serving(resolution) == {"tool_calls": None, "reasoning": None}
    assert "--skip-tokenizer-init" in rule(resolution, "tool_call_parser")
    assert "--skip-tokenizer-init" in refused(reasoning_parser="think", skip_tokenizer_init=True)


def test_a_stranger_is_recognised_only_if_it_is_allowed() -> None:
    rows = catalogue(
        row("parser", "loud", distribution="acme", features=("tool_calls",), templates=(("<tool_call> b",),))
    )
    model = facts(chat_template="a <tool_call> b")
    assert serving(resolved(rows, model=model))["tool_calls"] == "hermes"
    assert "--tool-call-parser loud" in reason(resolved(rows, model=model), "parser", "loud")
    assert serving(resolved(rows, model=model, plugin_allow=("acme",)))["tool_calls"] == "loud"


QWEN = r"For each call: <tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"
QWEN_THINKING = QWEN + r"{% if enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}"
CODER = "<tool_call>\n<function=name>\n<parameter=one>\nvalue\n</parameter>\n</function>\n</tool_call>"
LLAMA = (
    '<|start_header_id|>ipython ... {"name": function name, "parameters": dictionary of argument name and its value}'
)
GLM = "<tool_call>{function-name}\n<arg_key>{key}</arg_key>\n</tool_call>{{ tc.arguments }}<think></think>{{ enable_thinking }}"
R1 = "{% if '</think>' in content %}{{ '<｜Assistant｜>' + content }}{{ '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' }}```json"
V31 = "{% if not thinking %}{{ '<｜Assistant｜></think>' }}{{ '<｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>' }}"


@pytest.mark.parametrize(
    ("template", "tool_calls", "reasoning"),
    [
        (QWEN, "hermes", None),
        (QWEN_THINKING, "hermes", "think"),
        (CODER, "qwen3-coder", None),
        (LLAMA, "llama3-json", None),
        (GLM, None, "think"),
        (R1, "deepseek-v3", "deepseek-r1"),
        (V31, "deepseek-v3", "think"),
        ("[AVAILABLE_TOOLS] [TOOL_CALLS] [ARGS]", "mistral", None),
        ("[TOOL_CALLS] [THINK]{{ thinking }}[/THINK]", "mistral", "mistral-think"),
        ("Use exact format: [func_name1(param1=value1), func_name2(...)]", "pythonic", None),
        ("<|im_start|>", None, None),
    ],
)
def test_our_own_parsers_are_known_by_their_templates(
    template: str, tool_calls: str | None, reasoning: str | None
) -> None:
    rows = catalogue(*discover().rows("parser"), without="parser")
    found = serving(resolved(rows, model=facts(chat_template=template)))
    assert found == {"tool_calls": tool_calls, "reasoning": reasoning}
