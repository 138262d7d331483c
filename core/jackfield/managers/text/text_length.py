"""Refuses a text that is far too long for the context without tokenizing all of it: a body of eight megabytes takes a tokenizer
tens of seconds, and other clients' prompts wait for the same threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jackfield.managers.errors import RequestError

CHARS_A_TOKEN = 4
"""In plain prose. A text of so many for each token of the context is tokenized as a whole."""

SURE = 2
"""A beginning that has so many times the tokens that fit is proof enough: only the last word of it is cut otherwise than in the
whole text."""


Encode = Callable[[str], Sequence[int]]


def refuse_far_too_long(text: str, context_length: int, encode: Encode, *, param: str = "prompt") -> None:
    """Raises RequestError for a text whose beginning alone does not fit. Tokenizes nothing of a text of usual length, and of a
    longer one at most two thirds again."""
    if (found := _sure_beginning(text, context_length, encode)) is not None:
        size, tokens = found
        raise RequestError(
            f"{param}: the first {size} of {len(text)} characters have {tokens} tokens, but the model's context length is "
            f"{context_length}. Shorten the prompt.",
            param=param,
            code="context_length_exceeded",
        )


def enough_of(text: str, most: int, encode: Encode) -> str:
    """A beginning that has more than twice `most` tokens, for whoever keeps `most` of them; all of it, if it has no such one."""
    found = _sure_beginning(text, most, encode)
    return text if found is None else text[: found[0]]


def _sure_beginning(text: str, most: int, encode: Encode) -> tuple[int, int] | None:
    """(characters, tokens) of a beginning that has more than SURE times `most` tokens; None: the text is short, or none has."""
    size = CHARS_A_TOKEN * most
    while 2 * size < len(text):
        tokens = len(encode(text[:size]))
        if tokens > SURE * most:
            return size, tokens
        size *= 4
    return None
