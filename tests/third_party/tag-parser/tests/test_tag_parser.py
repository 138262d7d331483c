"""What is reasoning, with a word of the operator's."""

from __future__ import annotations

import pytest
from tag_parser.plugin import TagParser

from jackfield.hookspecs import Content, Reasoning
from jackfield.testing.conformance.parser import joined, read


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<plan>Hm.</plan>Yes.", "Hm.", "Yes."),
        ("<plan>Hm.</pla", "Hm.</pla", ""),
        ("Yes. <plan>Hm.</plan>", "", "Yes. <plan>Hm.</plan>"),
        ("<pla", "", "<pla"),
    ],
)
def test_texts(text: str, reasoning: str, content: str) -> None:
    pieces = joined(read(TagParser("plan").stream(opened=False), *text))
    expected = [Reasoning(text=reasoning)] * bool(reasoning) + [Content(text=content)] * bool(content)
    assert pieces == expected


def test_a_prompt_may_open_it() -> None:
    parser = TagParser("plan")
    assert parser.opened("<assistant>\n<plan>\n")
    assert not parser.opened("<plan></plan>")
