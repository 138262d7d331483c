"""B85: a text that is far too long costs a tokenizer no more than its beginning."""

from __future__ import annotations

import pytest

from jackfield.managers.errors import RequestError
from jackfield.managers.text.text_length import CHARS_A_TOKEN, enough_of, refuse_far_too_long

CONTEXT = 100


class Counting:
    """One token for so many characters."""

    def __init__(self, chars: int) -> None:
        self._chars = chars
        self.seen: list[int] = []

    def __call__(self, text: str) -> range:
        self.seen.append(len(text))
        return range(len(text) // self._chars)


@pytest.mark.parametrize("chars", [1, 2, 4, 7, 64])
def test_what_may_fit_is_never_refused_and_costs_little(chars: int) -> None:
    for tokens in (1, CONTEXT // 2, CONTEXT, 2 * CONTEXT):
        encode = Counting(chars)
        refuse_far_too_long("x" * (chars * tokens), CONTEXT, encode)
        assert 3 * sum(encode.seen) <= 2 * chars * tokens
    usual = Counting(chars)
    refuse_far_too_long("x" * (2 * CHARS_A_TOKEN * CONTEXT), CONTEXT, usual)
    assert usual.seen == []


@pytest.mark.parametrize(("chars", "most"), [(1, 400), (2, 1600), (5, 1600), (64, 25600)])
def test_what_is_far_too_long_is_refused_by_its_beginning(chars: int, most: int) -> None:
    encode = Counting(chars)
    with pytest.raises(RequestError, match="context length is 100") as refused:
        refuse_far_too_long("x" * 10**7, CONTEXT, encode, param="messages")
    assert (refused.value.param, refused.value.code) == ("messages", "context_length_exceeded")
    assert max(encode.seen) <= most


def test_what_is_cut_anyway_is_not_tokenized_to_its_end() -> None:
    for chars in (1, 4, 30):
        encode = Counting(chars)
        kept = enough_of("x" * 10**6, CONTEXT, encode)
        assert len(kept) // chars > 2 * CONTEXT
        assert len(kept) < 100_000
        assert max(encode.seen) <= len(kept)
    short = "x" * 700
    assert enough_of(short, CONTEXT, Counting(1)) is short
