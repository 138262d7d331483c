"""B83: a model's template cannot take the server's time or memory, or reach Python, however it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackfield.managers.errors import RequestError
from jackfield.managers.fields.limits import DEFAULT_LIMITS
from jackfield.managers.template_manager import TemplateManager

HELLO = [{"role": "user", "content": "hello"}]


def manager(tmp_path: Path, source: str) -> TemplateManager:
    path = tmp_path / "template.jinja"
    path.write_text(source)
    return TemplateManager(None, path)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(10**9) %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{% for i in range(99999) %}{% endfor %}{% endmacro %}{% for i in range(999) %}{{ m() }}{% endfor %}",
        "{% for i in range(99999) %}{{ messages[0].content * 1000 }}{% endfor %}",
        "{{ messages.__class__.__mro__ }}{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_a_hostile_template_is_refused_by_name(tmp_path: Path, source: str) -> None:
    with pytest.raises(RequestError) as refused:
        manager(tmp_path, source).render(HELLO)
    assert (refused.value.status_code, refused.value.param) == (400, "messages")


def test_loops_keep_what_templates_use_of_them(tmp_path: Path) -> None:
    source = (
        "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ ' first' if loop.first }}{{ ' last' if loop.last }}"
        "{{ ' after ' + loop.previtem.role if loop.previtem is defined }};{% else %}none{% endfor %}"
        "{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}{% for x in [] %}{% else %} none{% endfor %}"
        "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    )
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert manager(tmp_path, source).render(messages) == "1/2 first;2/2 last after user;a1 nonea"


def test_a_long_conversation_is_within_the_budget(tmp_path: Path) -> None:
    source = "{% for m in messages %}{{ m.content }}{% endfor %}"
    many = HELLO * DEFAULT_LIMITS.max_messages
    assert len(many) * 10 < DEFAULT_LIMITS.max_template_steps
    assert manager(tmp_path, source).render(many) == "hello" * len(many)


def test_each_rendering_has_a_budget_of_its_own(tmp_path: Path) -> None:
    template = manager(tmp_path, "{% for i in range(99999) %}{% endfor %}done")
    assert [template.render(HELLO) for _ in range(12)] == ["done"] * 12
