"""Keys and requests as the model of a cache knows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from jackfield.hookspecs import CacheKey, Lease

Prefix = tuple[bytes, tuple[int, ...]]


@dataclass
class Request:
    """row: slot of each computed token, owned from lease.length on; floor: where its window begins."""

    namespace: bytes
    tokens: list[int]
    lease: Lease
    floor: int
    row: list[int] = field(default_factory=list)
    final: bool = False

    def prefix(self, length: int) -> Prefix:
        return prefix_of(self.namespace, self.tokens, length)

    def key(self, length: int) -> CacheKey:
        return make_key(self.namespace, self.tokens[:length])


def make_key(namespace: bytes, tokens: Sequence[int]) -> CacheKey:
    return CacheKey(namespace=namespace, tokens=np.array(tokens, dtype=np.int32))


def prefix_of(namespace: bytes, tokens: Sequence[int], length: int) -> Prefix:
    return namespace, tuple(tokens[:length])


def common_tokens(one: CacheKey, other: CacheKey) -> int:
    """Tokens at the front that two keys share."""
    if one.namespace != other.namespace:
        return 0
    n = min(len(one.tokens), len(other.tokens))
    differ = np.flatnonzero(one.tokens[:n] != other.tokens[:n])
    return int(differ[0]) if len(differ) else n
