"""Numbers that stand for token prefixes: 64-bit rolling hashes, vectorised.

h(empty) = seed of the adapter, h(prefix + t) = (h(prefix) + mix(t)) * BASE modulo 2**64. Good against accidents, not against
somebody who builds collisions on purpose.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]

_BASE = 0x9E3779B97F4A7C15  # odd, so it has an inverse modulo 2**64
_INVERSE = pow(_BASE, -1, 1 << 64)


def mix(values: U64) -> U64:
    """splitmix64's finaliser: close inputs, far outputs. Arrays only: NumPy warns when a scalar wraps."""
    x = values + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class PrefixHasher:
    """Hashes of all prefixes of sequences up to `longest` tokens."""

    def __init__(self, longest: int) -> None:
        self._powers = _powers(_BASE, longest + 1)
        self._inverses = _powers(_INVERSE, longest + 1)

    def empty(self, adapter: int) -> U64:
        """Hash of the empty prefix, uint64 [1]: KV of one adapter is not KV of another."""
        return mix(np.array([adapter], dtype=np.uint64))

    def prefixes(self, start: U64, tokens: NDArray[np.int32]) -> U64:
        """uint64 [n + 1]: the hash before the first token, `start` [1], and after each of the n tokens."""
        n = len(tokens)
        terms = mix(tokens.astype(np.uint64)) * self._inverses[:n]
        sums = np.concatenate([start, terms]).cumsum(dtype=np.uint64)
        return sums * self._powers[: n + 1]

    def extend(self, hashes: U64, tokens: NDArray[np.int32]) -> U64:
        """One token more for each of n sequences."""
        return (hashes + mix(tokens.astype(np.uint64))) * np.uint64(_BASE)


def _powers(base: int, count: int) -> U64:
    """base**0 .. base**(count - 1) modulo 2**64."""
    factors = np.full(count, base, dtype=np.uint64)
    factors[0] = 1
    return np.multiply.accumulate(factors)
