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


def refuse_far_too_long(
    text: str, context_length: int, encode: Callable[[str], Sequence[int]], *, param: str = "prompt"
) -> None:
    """Raises RequestError for a text whose beginning alone does not fit. Tokenizes nothing of a text of usual length, and of a
    longer one at most two thirds again."""
    size = CHARS_A_TOKEN * context_length
    while 2 * size < len(text):
        tokens = len(encode(text[:size]))
        if tokens > SURE * context_length:
            raise RequestError(
                f"{param}: the first {size} of {len(text)} characters have {tokens} tokens, but the model's context length is "
                f"{context_length}. Shorten the prompt.",
                param=param,
                code="context_length_exceeded",
            )
        size *= 4
