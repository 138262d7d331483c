"""A prefix cache that shares nothing. It keeps no slots; it only checks that leases are used as the contract says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import NO_SLOTS, Amounts, CacheKey, CacheSizes, Committed, Freed, Lease, PrefixCache


class ChunkLease(Lease):
    """final: the last commit was made."""

    __slots__ = ("final",)

    def __init__(self) -> None:
        super().__init__(0, NO_SLOTS)
        self.final = False


class ChunkCache(PrefixCache):
    """Every match is empty and every commit leaves all slots with the caller."""

    def __init__(self, page_size: int) -> None:
        if page_size < 1:
            raise ValueError(f"page_size must be at least 1, got {page_size}")
        self.page_size = page_size
        self._leases: set[ChunkLease] = set()

    def peek(self, keys: Sequence[CacheKey]) -> NDArray[np.int32]:
        return np.zeros(len(keys), dtype=np.int32)

    def acquire(self, key: CacheKey, limit: int) -> Lease:
        if limit < 0:
            raise ValueError(f"limit must not be negative, got {limit}")
        lease = ChunkLease()
        self._leases.add(lease)
        return lease

    def commit(self, lease: Lease, key: CacheKey, slots: NDArray[np.int32], *, final: bool) -> Committed:
        held = self._live(lease)
        if held.final:
            raise RuntimeError("commit after the final commit of this lease")
        if slots.shape != key.tokens.shape:
            raise ValueError(f"{slots.shape} slots for {key.tokens.shape} tokens")
        held.final = final
        return Committed(length=0, slots=NO_SLOTS, free=Freed())

    def release(self, lease: Lease) -> None:
        self._leases.remove(self._live(lease))

    def evict(self, need: Amounts) -> Freed:
        return Freed()

    def sizes(self) -> CacheSizes:
        return CacheSizes(evictable=0, protected=0)

    def reset(self) -> Freed:
        if self._leases:
            raise RuntimeError(f"reset while {len(self._leases)} leases exist")
        return Freed()

    def check(self) -> None:
        for lease in self._leases:
            if lease.length or len(lease.slots):
                raise AssertionError(f"a lease of the chunk cache claims {lease.length} tokens")

    def _live(self, lease: Lease) -> ChunkLease:
        if not isinstance(lease, ChunkLease) or lease not in self._leases:
            raise RuntimeError("this lease was released before, or is not one of this cache")
        return lease
