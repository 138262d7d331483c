"""Names of KV blocks: a chain of hashes over everything that the bytes of a block depend on."""

from __future__ import annotations

import hashlib

import numpy as np

from jackfield.hookspecs import CacheKey
from jackfield.mem_cache.accounting import round_up

DEFAULT_BLOCK_TOKENS = 64


def block_tokens(wanted: int, page_size: int) -> int:
    """Tokens a block: whole pages, at least `wanted`."""
    return round_up(wanted, page_size)


def block_keys(fingerprint: bytes, key: CacheKey, length: int, block: int) -> list[bytes]:
    """SHA-256 names of the whole blocks in the first `length` tokens; each stands for all tokens up to its end.

    fingerprint: of model and layout. A key with marks has none: the digests of media are not part of these names.
    """
    if key.marks:
        return []
    name = hashlib.sha256(len(key.namespace).to_bytes(8, "little") + key.namespace + fingerprint).digest()
    count = min(length, len(key.tokens)) // block
    data = np.ascontiguousarray(key.tokens[: count * block], dtype="<i4").tobytes()
    names = []
    for i in range(count):
        name = hashlib.sha256(name + data[i * 4 * block : (i + 1) * 4 * block]).digest()
        names.append(name)
    return names
