"""How deep lists and objects are nested: of JSON text before it is decoded, and of a decoded value. One pass over either, without
recursion, so that the measuring itself cannot be made to fail or to cost more than reading."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def text_is_deeper(text: bytes, most: int) -> bool:
    """Whether JSON text nests deeper than `most`. Text that is no JSON gets some answer; its decoder will refuse it."""
    if text.count(b"[") + text.count(b"{") <= most:
        return False
    depth = 0
    for token in _TOKENS.finditer(text):
        first = token.group()[:1]
        if first in b"[{":
            depth += 1
            if depth > most:
                return True
        elif first in b"]}":
            depth -= 1
    return False


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
