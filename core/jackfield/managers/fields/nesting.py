"""How deep lists and objects are nested: of JSON text before it is decoded, and of a decoded value. One pass over either, without
recursion, so that the measuring itself cannot be made to fail or to cost more than reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

_CHUNK = 1 << 16
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1
_BEGINS = np.zeros(256, np.bool_)
_BEGINS[[ord("["), ord("{"), ord(",")]] = True


def text_is_deeper(text: bytes, most: int) -> bool:
    """Whether JSON text nests deeper than `most`. Text that is no JSON gets some answer; its decoder will refuse it."""
    return measured(text, most, None) == "deep"


def measured(
    text: bytes, most_depth: int, most_values: int | None, chunk: int = _CHUNK
) -> Literal["deep", "many"] | None:
    """What of JSON text is more than allowed, the first of it; None: nothing. Values are the lists and objects, and
    what stands behind a comma in them; None: any number. Text that is no JSON gets some answer; its decoder will refuse it.

    A few passes of C over the text, by pieces: a body may consist of brackets, and must not cost more than one of words.
    """
    opened = text.count(b"[") + text.count(b"{")
    if opened <= most_depth and (most_values is None or opened + text.count(b",") <= most_values):
        return None
    # What is left of a string then ends at its next quote: pairs of backslashes come first, as a reader from the left sees them.
    plain = np.frombuffer(text.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    depth, values, in_string = 0, 0, False
    for begin in range(0, len(plain), chunk):
        piece = plain[begin : begin + chunk]
        quotes = piece == ord('"')
        quotes[0] ^= in_string
        inside = np.logical_xor.accumulate(quotes)
        in_string = bool(inside[-1])
        steps = np.where(inside, 0, _STEPS[piece])
        depths = depth + np.cumsum(steps, dtype=np.int64)
        if depths.max() > most_depth:
            return "deep"
        depth = int(depths[-1])
        values += int(np.count_nonzero(_BEGINS[piece] & ~inside))
        if most_values is not None and values > most_values:
            return "many"
    return None


def size_and_depth(value: Any, most_size: int, most_depth: int) -> tuple[int, int]:
    """About the bytes of a decoded value as JSON, never fewer than its texts and one for each entry, and its depth. Ends early,
    with a number above it, when either is more than asked for."""
    size = depth = 0
    level: list[Any] = [value]
    while level and size <= most_size and depth <= most_depth:
        deeper: list[Any] = []
        for one in level:
            size += 1
            if isinstance(one, str):
                size += _utf8_length(one)
            elif isinstance(one, Mapping):
                size += sum(_utf8_length(key) if isinstance(key, str) else 1 for key in one)
                deeper.append(one.values())
            elif isinstance(one, list | tuple):
                deeper.append(one)
            if size > most_size:
                return size, depth
        depth += bool(deeper)
        entries = sum(map(len, deeper))
        # Known to be too long before a list is made of it.
        if size + entries > most_size:
            return size + entries, depth
        level = [entry for group in deeper for entry in group]
    return size, depth


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
