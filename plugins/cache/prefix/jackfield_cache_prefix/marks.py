"""Media in token sequences: a marked position counts as its own token, different for each (token, digests).

The tree compares plain integers. A mark becomes a negative code in the place of its token; token ids are never negative.
Codes are kept only while a node holds them.
"""

from __future__ import annotations

import numpy as np

from jackfield.hookspecs import CacheKey
from jackfield_cache_prefix.radix_tree import Ints

UNKNOWN = int(np.iinfo(np.int32).min)
"""The code of a mark that no node holds; it is in no node, so nothing matches it."""

Marked = tuple[int, tuple[bytes, ...]]


class MarkTable:
    def __init__(self) -> None:
        self._code: dict[Marked, int] = {}
        self._marked: dict[int, Marked] = {}
        self._count: dict[int, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._code)

    def look_up(self, key: CacheKey) -> Ints:
        """The key's tokens with codes for marks, unknown ones as `UNKNOWN`. Changes nothing."""
        if not key.marks:
            return key.tokens
        tokens = key.tokens.copy()
        for position, marked in _marked(key).items():
            tokens[position] = self._code.get(marked, UNKNOWN)
        return tokens

    def encode(self, key: CacheKey) -> Ints:
        """As `look_up`, with new codes for unknown marks. They last if `keep` follows; else `sweep` drops them."""
        if not key.marks:
            return key.tokens
        tokens = key.tokens.copy()
        for position, marked in _marked(key).items():
            code = self._code.get(marked)
            if code is None:
                code = self._free.pop() if self._free else -(len(self._code) + 1)
                self._code[marked] = code
                self._marked[code] = marked
            tokens[position] = code
        return tokens

    def keep(self, tokens: Ints) -> None:
        """A node with these tokens came into the tree."""
        for code in _codes(tokens):
            self._count[code] = self._count.get(code, 0) + 1

    def drop(self, tokens: Ints) -> None:
        """These tokens left the tree."""
        for code in _codes(tokens):
            self._count[code] -= 1
        self.sweep(tokens)

    def sweep(self, tokens: Ints) -> None:
        """Forget those codes of this sequence that no node holds."""
        for code in set(_codes(tokens)):
            if not self._count.get(code) and code in self._marked:
                self._count.pop(code, None)
                del self._code[self._marked.pop(code)]
                self._free.append(code)

    def decode(self, tokens: Ints) -> tuple[int, ...]:
        """The token ids as they came in."""
        return tuple(token if token >= 0 else self._marked[token][0] for token in tokens.tolist())

    def counts(self) -> dict[int, int]:
        """Code -> how often it is in the tree."""
        return dict(self._count)


def _marked(key: CacheKey) -> dict[int, Marked]:
    """Position -> its token and all digests there, in the order given; marks behind the tokens do not count."""
    digests: dict[int, tuple[bytes, ...]] = {}
    for position, digest in key.marks:
        if position < 0:
            raise ValueError(f"a mark stands at position {position}")
        if position < len(key.tokens):
            digests[position] = (*digests.get(position, ()), digest)
    return {position: (int(key.tokens[position]), found) for position, found in digests.items()}


def _codes(tokens: Ints) -> list[int]:
    found: list[int] = tokens[tokens < 0].tolist()
    return found
