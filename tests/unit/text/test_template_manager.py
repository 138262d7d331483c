"""Chat templates: the model's own text, as transformers renders it, and a 400 for everything that cannot be rendered."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.hookspecs.loader import TokenizerFiles
from jackfield.managers.chat.content_format import ContentFormat, content_format
from jackfield.managers.chat.environment import chat_environment
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.limits import RequestLimits
from jackfield.managers.template_manager import TemplateManager
from jackfield.managers.text.tokenizer import Tokenizer

CHATML = """\
{% for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' -}}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

PARTS = """\
{{- bos_token }}
{%- for message in messages %}
    {%- if message.content is string %}
        {{- message.role }}: {{ message.content | trim }}
    {%- else %}
        {{- message.role }}:{% for part in message.content %}{{ part.text }}{% endfor %}
    {%- endif %}
    {{- eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}{{- 'assistant:' }}{% endif %}"""

ONLY_PARTS = (
    "{% for m in messages %}{{ m.role }}:{% for line in m['content'] %}[{{ line['text'] }}]{% endfor %}{% endfor %}"
)

CLEVER = """\
{%- set ns = namespace(count=0) %}
{%- if tools %}{{ tools | tojson(indent=2) }}{% endif %}
{%- for message in messages %}
    {%- set ns.count = ns.count + 1 %}
    {%- if message.role == 'system' %}{% continue %}{% endif %}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{ message.content | trim }}{{ eos_token }}{% endgeneration %}
    {%- else %}
        {{- dict(role=message.role).role }} {{ message.content | tojson }} {{ message.role | tojson }}
    {%- endif %}
    {%- if ns.count >= 4 %}{% break %}{% endif %}
{%- endfor %}
{{- ns.count }}
"""

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
HELLO = [{"role": "user", "content": "Hello"}]
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "  é 猫 😀 <b>&\n"},
    {"role": "assistant", "content": " Yes. "},
    {"role": "user", "content": "Why?"},
]


def manager(template: str | None, **files: Any) -> TemplateManager:
    return TemplateManager(TokenizerFiles(tokenizer_json=b"", special_tokens=SPECIAL, chat_template=template, **files))


def refused(action: Callable[[], object], param: str) -> RequestError:
    with pytest.raises(RequestError) as caught:
        action()
    assert (caught.value.status_code, caught.value.param) == (400, param)
    return caught.value


@pytest.mark.parametrize("template", [CHATML, PARTS, CLEVER], ids=["chatml", "parts", "clever"])
@pytest.mark.parametrize("generation_prompt", [True, False])
@pytest.mark.parametrize("continue_final", [True, False])
@pytest.mark.parametrize("messages", [HELLO, TALK, TALK[:3]], ids=["hello", "talk", "answered"])
def test_renders_as_transformers_does(
    template: str, generation_prompt: bool, continue_final: bool, messages: list[dict[str, Any]]
) -> None:
    reference = pytest.importorskip("transformers.utils.chat_template_utils")
    (expected,), _ = reference.render_jinja_template(
        [messages],
        chat_template=template,
        add_generation_prompt=generation_prompt and not continue_final,
        continue_final_message=continue_final,
        **SPECIAL,
    )
    rendered = manager(template).render(
        messages, add_generation_prompt=generation_prompt, continue_final_message=continue_final
    )
    assert rendered == expected


def test_tools_and_further_variables_reach_the_template() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    reference = pytest.importorskip("transformers.utils.chat_template_utils")
    (expected,), _ = reference.render_jinja_template([HELLO], chat_template=CLEVER, tools=tools, **SPECIAL)
    assert manager(CLEVER).render(HELLO, tools=tools, add_generation_prompt=False) == expected
    thinking = manager("{{ messages[0].content }}{% if enable_thinking %} think{% endif %}")
    assert thinking.render(HELLO, template_kwargs={"enable_thinking": True}) == "Hello think"
    assert thinking.render(HELLO, enable_thinking=True) == "Hello think"
    assert thinking.render(HELLO) == "Hello"


def test_template_for_tools_is_taken_when_there_are_tools() -> None:
    both = manager("plain", chat_templates={"tool_use": "with tools", "other": "x"})
    assert both.render(HELLO) == "plain"
    assert both.render(HELLO, tools=[{"type": "function"}]) == "with tools"


def test_date_is_injected() -> None:
    files = TokenizerFiles(tokenizer_json=b"", chat_template="{{ strftime_now('%d %b %Y') }}")
    assert TemplateManager(files, now=lambda: datetime(2024, 2, 3)).render(HELLO) == "03 Feb 2024"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (CHATML, ContentFormat("string", False)),
        (PARTS, ContentFormat("openai", True)),
        (ONLY_PARTS, ContentFormat("openai", False)),
        ("{% set c = messages[0].content %}{% for p in c %}{{ p.text }}{% endfor %}", ContentFormat("openai", False)),
        (
            "{% macro show(c) %}{% for p in c %}{{ p.text }}{% endfor %}{% endmacro %}{{ show(messages[0].content) }}",
            ContentFormat("openai", False),
        ),
        ("{{ messages[0]['content'][0]['text'] }}", ContentFormat("openai", False)),
        ("{{ messages[0]['content'][0] }}", ContentFormat("string", False)),
        ("{% for t in tools %}{% if t is mapping %}{{ t }}{% endif %}{% endfor %}", ContentFormat("string", False)),
        ("{% for x in messages[0].content.split('a') %}{{ x }}{% endfor %}", ContentFormat("string", False)),
    ],
)
def test_content_format(source: str, expected: ContentFormat) -> None:
    assert content_format(chat_environment(datetime.now).parse(source)) == expected


def test_content_fits_what_the_template_reads() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}]
    assert manager("{{ messages[0].content }}").render(parts) == "one two"
    assert manager(ONLY_PARTS).render(parts) == "user:[one][two]"
    assert manager(ONLY_PARTS).render(HELLO) == "user:[Hello]"
    assert manager(PARTS).render(parts, add_generation_prompt=False) == "<s>user:onetwo</s>"
    assert manager("{{ messages[0].content }}|").render([{"role": "assistant", "content": None}]) == "|"
    assert manager("{{ messages[0].content }}|").render([{"role": "assistant"}]) == "|"
    assert manager("{{ messages[0].content }}|").render([{"role": "user", "content": []}]) == "|"


def test_null_fields_of_a_message_are_absent() -> None:
    template = "{% if messages[0].tool_calls is defined %}calls{% else %}none{% endif %}"
    assert manager(template).render([{"role": "assistant", "content": "x", "tool_calls": None}]) == "none"


def test_the_clients_messages_are_left_alone() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "one"}]}]
    manager(ONLY_PARTS).render(messages, continue_final_message=True)
    assert messages == [{"role": "user", "content": [{"type": "text", "text": "one"}]}]


def test_continue_final_message_leaves_the_turn_open() -> None:
    messages = [*HELLO, {"role": "assistant", "content": "It is "}]
    rendered = manager(CHATML).render(messages, continue_final_message=True)
    assert rendered == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nIt is "


@pytest.mark.parametrize(
    "template", ["{{ messages[0].content }}", "{{ messages[1].content }}{{ messages[1].content }}"]
)
def test_continue_final_message_that_the_template_hides_or_repeats(template: str) -> None:
    render = manager(template).render
    messages = [*HELLO, {"role": "assistant", "content": "It"}]
    refused(lambda: render(messages, continue_final_message=True), "continue_final_message")


@pytest.mark.parametrize("template", [None, "{% if %}"], ids=["none", "broken"])
def test_b76_no_usable_template_refuses_chat_and_says_what_works(template: str | None) -> None:
    error = refused(lambda: manager(template).render(HELLO), "messages")
    assert "completions work" in error.message
    assert "--chat-template" in error.message
    assert not manager(template).has_template


def test_no_files_at_all() -> None:
    refused(lambda: TemplateManager(None).render(HELLO), "messages")


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("Hello", "messages"),
        ({"role": "user"}, "messages"),
        (None, "messages"),
        (["Hello"], "messages[0]"),
        ([*HELLO, {"content": "x"}], "messages[1].role"),
        ([{"role": 7, "content": "x"}], "messages[0].role"),
        ([{"role": "", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": 7}], "messages[0].content"),
        ([{"role": "user", "content": {"type": "text", "text": "x"}}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text", "text": None}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": "\ud800"}], "messages[0].content"),
    ],
)
def test_malformed_messages(messages: Any, param: str) -> None:
    refused(lambda: manager(CHATML).render(messages), param)


def test_a_refusal_does_not_repeat_megabytes() -> None:
    parts = [{"type": ["x" * 1_000_000], "text": "a"}]
    with pytest.raises(RequestError) as caught:
        manager(CHATML).render([{"role": "user", "content": parts}])
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages[0].nothing.at.all }}",
        "{{ 1 / 0 }}",
        "{{ messages[7].content }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% set ns = namespace(_x=1) %}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{{ range(10 ** 9) | list }}",
        "{{ messages[0].content.nothing() }}",
        "{{ dict([1]) }}",
        "{{ messages | tojson(indent=messages) }}",
    ],
)
def test_what_a_template_refuses_or_stumbles_over_is_the_requests_error(template: str) -> None:
    refused(lambda: manager(template).render(HELLO), "messages")


def test_template_says_why_it_refuses() -> None:
    error = refused(lambda: manager("{{ raise_exception('roles must alternate') }}").render(HELLO), "messages")
    assert "roles must alternate" in error.message


def test_output_out_of_hand_is_stopped() -> None:
    files = TokenizerFiles(
        tokenizer_json=b"",
        chat_template="{% for i in range(90000) %}{% for j in range(90000) %}xxxxxxxx{% endfor %}{% endfor %}",
    )
    refused(lambda: TemplateManager(files, limits=RequestLimits(max_template_chars=10_000)).render(HELLO), "messages")


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", 7])
def test_a_client_cannot_override_what_the_template_is_called_with(name: Any) -> None:
    refused(lambda: manager(CHATML).render(HELLO, template_kwargs={name: []}), "chat_template_kwargs")


def test_override(tmp_path: Path) -> None:
    files = TokenizerFiles(tokenizer_json=b"", chat_template="own", chat_templates={"tool_use": "own tools"})
    jinja = tmp_path / "mine.jinja"
    jinja.write_text("mine {{ messages[0].content }}", encoding="utf-8")
    assert TemplateManager(files, jinja).render(HELLO) == "mine Hello"
    assert TemplateManager(files, jinja).render(HELLO, tools=[{"type": "function"}]).startswith("mine You may call")
    as_json = tmp_path / "mine.json"
    as_json.write_text('{"chat_template": "json {{ messages[0].content }}"}', encoding="utf-8")
    assert TemplateManager(None, as_json).render(HELLO) == "json Hello"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jinja", b"{% if %}"),
        ("a.jinja", b"\xff"),
        ("a.json", b"{}"),
        ("a.json", b"{"),
        ("a.json", b"[]"),
        ("none.jinja", None),
    ],
)
def test_unusable_override_stops_the_start(tmp_path: Path, name: str, content: bytes | None) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
        TemplateManager(None, path)


def test_encode_adds_no_second_bos(libraries: dict[str, Any], make_tokenizer: Callable[..., Tokenizer]) -> None:
    special = {"bos_token": "<|start|>", "eos_token": "<|end|>"}
    tokenizer = make_tokenizer(libraries["byte_level"], special, add_bos=True)
    files = TokenizerFiles(
        tokenizer_json=b"", special_tokens=special, chat_template="{{ bos_token }}{{ messages[0].content }}"
    )
    ids = TemplateManager(files, None, tokenizer).encode(HELLO)
    assert ids.count(tokenizer.bos_token_id or 0) == 1
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|start|>Hello"
    refused(lambda: TemplateManager(files).encode(HELLO), "messages")
    odd: Any = [{"role": "user", "content": "x", "name": "\ud800"}]
    named = TokenizerFiles(tokenizer_json=b"", chat_template="{{ messages[0].name }}")
    refused(lambda: TemplateManager(named, None, tokenizer).encode(odd), "messages")


def test_environment_is_immutable_and_shares_nothing_between_requests() -> None:
    environment = chat_environment(datetime.now)
    with pytest.raises(jinja2.exceptions.SecurityError):
        environment.from_string("{{ messages[0].update(role='x') }}").render(messages=HELLO)
