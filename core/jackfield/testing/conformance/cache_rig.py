"""How the cache suite makes a cache, with its model beside it, and puts requests into it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import Lease, PrefixCache
from jackfield.testing.conformance.cache_keys import make_key
from jackfield.testing.conformance.cache_model import CacheModel
from jackfield.testing.conformance.suite import Conformance

PAGE = 4


class CacheRig(Conformance):
    kind = "cache"

    def cache(self, page_size: int = PAGE, **fields: Any) -> PrefixCache:
        made: PrefixCache = self.make(page_size=page_size, total_slots=4096, **fields)
        return made

    def stores(self, cache: PrefixCache) -> None:
        """End the check as "not claimed" for a cache that keeps nothing of what it is offered."""
        if not self.put(cache, list(range(100, 100 + PAGE)), 4000):
            self.not_claimed("it keeps nothing of what is committed")

    def put(self, cache: PrefixCache, tokens: list[int], first: int, namespace: bytes = b"") -> int:
        """One whole request in the slots from `first` on. Returns how much of it the cache owns then."""
        key = make_key(namespace, tokens)
        lease = cache.acquire(key, len(tokens))
        done = cache.commit(lease, key, row(lease, len(tokens), first), final=True)
        cache.release(lease)
        return done.length

    def model(self, page_size: int, window: int | None = None, **fields: Any) -> CacheModel:
        """A new cache beside its model, with all that the manifest claims switched on."""
        features = self.manifest().features
        evicted = "evicted" in features
        more = fields if window is None else fields | {"window": window}
        cache = self.cache(page_size, events=True, evicted=evicted, **more)
        return CacheModel(cache, page_size, window=window, forest="forest" in features, evicted=evicted)


def row(lease: Lease, length: int, first: int) -> NDArray[np.int32]:
    """A request's slots: the lease's own, then fresh ones from first + lease.length on."""
    fresh = np.arange(first + lease.length, first + length, dtype=np.int32)
    return np.concatenate([lease.slots[:length], fresh]).astype(np.int32)
