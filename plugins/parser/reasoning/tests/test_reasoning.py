"""Reasoning between tags: case b35, and prompts that open it."""

from __future__ import annotations

import pytest

from jackfield.hookspecs import Content, Reasoning
from jackfield_parser_reasoning.tags import TagParser

THINK = TagParser("<think>", "</think>")


def read(*chunks: str, opened: bool = False) -> tuple[str, str]:
    """Reasoning and content."""
    stream = THINK.stream(opened=opened)
    pieces = [piece for chunk in chunks for piece in stream.feed(chunk)]
    pieces += stream.finish()
    assert all(isinstance(piece, Reasoning | Content) and piece.text for piece in pieces)
    return (
        "".join(piece.text for piece in pieces if isinstance(piece, Reasoning)),
        "".join(piece.text for piece in pieces if isinstance(piece, Content)),
    )


@pytest.mark.parametrize(
    ("text", "opened", "expected"),
    [
        ("<think>\nHm.\n</think>\n\nYes. ", False, ("Hm.\n", "Yes. ")),
        ("\n <think>a</think>b", False, ("a", "b")),
        ("Hm.</think>Yes", True, ("Hm.", "Yes")),
        ("<think>Hm.</think>Yes", True, ("Hm.", "Yes")),
        ("<think>Hm.", False, ("Hm.", "")),
        ("Hm. No end </thin", True, ("Hm. No end </thin", "")),
        ("Hm.</think>\nYes", False, ("", "Hm.Yes")),
        ("<thi is no tag", False, ("", "<thi is no tag")),
        ("Say <think>", False, ("", "Say <think>")),
        ("<think>a < b </ think> </think", False, ("a < b </ think> </think", "")),
        ("<think></think>", False, ("", "")),
        ("  x", False, ("", "  x")),
        ("   ", False, ("", "   ")),
        ("a</think>b</think>", True, ("a", "b</think>")),
        ("", True, ("", "")),
    ],
)
def test_b35_the_same_split_however_the_text_is_cut(text: str, opened: bool, expected: tuple[str, str]) -> None:
    assert read(text, opened=opened) == expected
    for length in range(1, len(text) + 1):
        chunks = [text[at : at + length] for at in range(0, len(text), length)]
        assert read(*chunks, opened=opened) == expected
    for place in range(len(text)):
        assert read(text[:place], text[place:], opened=opened) == expected


@pytest.mark.parametrize(
    ("prompt_end", "opened"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>\nSo far", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<|im_start|>user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n", False),
        ("<｜User｜>Use <think><｜Assistant｜>", False),
        ("<|im_start|>assistant\n", False),
        ("", False),
    ],
)
def test_the_end_of_the_prompt_tells_whether_the_reasoning_is_open(prompt_end: str, opened: bool) -> None:
    assert THINK.opened(prompt_end) is opened
    assert TagParser("<think>", "</think>", always=True).opened(prompt_end)


def test_the_switches_are_those_of_the_chat_template() -> None:
    def switches(template: str) -> tuple[str, ...]:
        return TagParser("<think>", "</think>", template=template).template_switch

    assert switches("{% if enable_thinking is false %}") == ("enable_thinking",)
    assert switches("{% if not thinking is defined %}") == ("thinking",)
    assert switches("{% set is_thinking = 1 %}") == ()
