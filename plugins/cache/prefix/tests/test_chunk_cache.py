"""The cache that shares nothing."""

from __future__ import annotations

import numpy as np
import pytest

from jackfield.hookspecs import Amounts, CacheContext, CacheKey, CacheSizes, PrefixCache
from jackfield_cache_prefix.chunk import jackfield_prefix_cache

PROMPT = CacheKey(namespace=b"", tokens=np.arange(8, dtype=np.int32))
ROW = np.arange(100, 108, dtype=np.int32)


@pytest.fixture
def cache() -> PrefixCache:
    return jackfield_prefix_cache(
        CacheContext(kind="cache", name="chunk", instance="chunk", page_size=4, total_slots=100)
    )


def test_nothing_is_shared(cache: PrefixCache) -> None:
    for _ in range(2):
        assert cache.peek([PROMPT, PROMPT]).tolist() == [0, 0]
        lease = cache.acquire(PROMPT, 7)
        assert lease.length == 0
        for final in (False, True):
            done = cache.commit(lease, PROMPT, ROW, final=final)
            assert (done.length, len(done.slots), len(done.free.slots)) == (0, 0, 0)
            assert lease.length == 0
        cache.check()
        cache.release(lease)
    assert cache.sizes() == CacheSizes(evictable=0, protected=0)
    assert len(cache.evict(Amounts(slots=4)).slots) == 0
    assert len(cache.reset().slots) == 0


def test_leases_are_still_counted(cache: PrefixCache) -> None:
    lease = cache.acquire(PROMPT, 7)
    with pytest.raises(RuntimeError, match="1 leases"):
        cache.reset()
    with pytest.raises(ValueError, match="slots for"):
        cache.commit(lease, PROMPT, ROW[:3], final=False)
    cache.commit(lease, PROMPT, ROW, final=True)
    with pytest.raises(RuntimeError, match="final"):
        cache.commit(lease, PROMPT, ROW, final=True)
    cache.release(lease)
    with pytest.raises(RuntimeError, match="released"):
        cache.release(lease)
    with pytest.raises(ValueError, match="limit"):
        cache.acquire(PROMPT, -1)
