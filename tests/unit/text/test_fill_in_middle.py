"""The markers are found by their names, whatever brackets a family writes round them, and only if they are unambiguous."""

from __future__ import annotations

import pytest

from jackfield.managers.text.fill_in_middle import find_markers

FAMILIES = [
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_they_stand_round_and_between_the_two_texts(family: tuple[str, str, str]) -> None:
    markers = find_markers({*family, "<|fim_pad|>", "<|im_end|>", "<s>"})
    assert markers is not None
    prefix, suffix, middle = family
    assert markers.prompt("a", "b") == f"{prefix}a{suffix}b{middle}"


@pytest.mark.parametrize(
    "texts", [(), ("<|im_end|>",), FAMILIES[0][:2], (*FAMILIES[0], *FAMILIES[1]), ("fim", "<mid>")]
)
def test_a_model_without_them_has_none(texts: tuple[str, ...]) -> None:
    assert find_markers(texts) is None
