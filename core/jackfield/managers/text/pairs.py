"""A whole prompt of one text or of two, as ids and token types, cut to a length if need be. Knows no request."""

from __future__ import annotations

import tokenizers

from jackfield.managers.errors import RequestError
from jackfield.managers.text.tokenizer import Tokenizer, check_unicode

NO_TYPES = b""
"""All token types are 0."""


def encode_whole(
    tokenizer: Tokenizer, text: str, second: str | None = None, *, most: int | None = None
) -> tuple[list[int], bytes]:
    """(ids, a byte for each: to which text it belongs, or nothing if all are 0), the model's own tokens put around and between.

    most   tokens that are kept, its own included, from the beginning; of a pair the longer text loses first. None: all

    Raises RequestError for text that is not Unicode, and where nothing of a text would be left.
    """
    if second is None and most is None:
        return tokenizer.encode(text), NO_TYPES
    for one in (text, second or ""):
        check_unicode(one, "prompt")
    ids, types = tokenizer.encode_texts(text, second, lambda first, other, own: _cut(first, other, own, most))
    return ids, bytes(types) if any(types) else NO_TYPES


def _cut(first: tokenizers.Encoding, second: tokenizers.Encoding | None, own: int, most: int | None) -> None:
    """own: tokens that the model puts around them."""
    if most is None:
        return
    if most <= own:
        raise RequestError(
            f"truncate_prompt_tokens is {most}, but the model puts {own} tokens of its own around each prompt",
            param="truncate_prompt_tokens",
        )
    room = most - own
    lengths = [len(first), 0 if second is None else len(second)]
    # The longer one is cut down to the shorter, and then both alike.
    keep = [min(lengths[0], max(room - lengths[1], (room + 1) // 2)), 0]
    keep[1] = min(lengths[1], room - keep[0])
    first.truncate(keep[0])
    if second is not None:
        second.truncate(keep[1])
