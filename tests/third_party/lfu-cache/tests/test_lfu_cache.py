"""A cache moves slot numbers, so its tests need neither torch nor a model."""

from __future__ import annotations

import numpy as np
from lfu_cache.cache import LfuCache
from lfu_cache.options import LfuOptions

from jackfield.hookspecs import Amounts, CacheKey
from jackfield.testing.scheduler_harness import SchedulerHarness


def key(*tokens: int) -> CacheKey:
    return CacheKey(namespace=b"model", tokens=np.array(tokens, dtype=np.int32))


def use(cache: LfuCache, *tokens: int) -> None:
    """One request from begin to end; token t lies in slot 10 t."""
    wanted = key(*tokens)
    lease = cache.acquire(wanted, len(tokens))
    cache.commit(lease, wanted, 10 * wanted.tokens, final=True)
    cache.release(lease)


def test_what_many_use_outlives_what_came_last() -> None:
    cache = LfuCache(LfuOptions(), page_size=2)
    for _ in range(3):
        use(cache, 1, 2)
    use(cache, 1, 2, 3, 4)
    use(cache, 5, 6)
    assert cache.evict(Amounts(slots=2)).slots.tolist() == [30, 40]
    assert cache.evict(Amounts(slots=2)).slots.tolist() == [50, 60]
    assert cache.peek([key(1, 2, 3, 4)]).tolist() == [2]
    cache.check()


def test_old_fame_fades() -> None:
    cache = LfuCache(LfuOptions(half_life=1), page_size=2)
    for _ in range(3):
        use(cache, 1, 2)
    for _ in range(2):
        use(cache, 3, 4)
    assert cache.evict(Amounts(slots=2)).slots.tolist() == [10, 20]


def test_counts_stay_finite_over_a_long_run() -> None:
    cache = LfuCache(LfuOptions(half_life=1), page_size=2)
    use(cache, 1, 2)
    for _ in range(2000):
        use(cache, 3, 4)
    assert cache.evict(Amounts(slots=2)).slots.tolist() == [10, 20]


def test_in_a_real_scheduler_that_runs_out_of_memory() -> None:
    harness = SchedulerHarness(cache=LfuCache(LfuOptions(), 4), page_size=4, total_slots=96)
    rids = [harness.submit([n % 3, *range(20)], max_new_tokens=5) for n in range(12)]
    harness.run()
    assert all(harness.answers[rid].ids == harness.expected(rid, 5) for rid in rids)
    harness.assert_at_rest()
