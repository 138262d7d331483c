"""Which prefix goes first under each eviction strategy of the radix cache, by example."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from pydantic import ValidationError

from jackfield.hookspecs import Amounts, CacheContext, CacheKey
from jackfield_cache_prefix.options import Eviction, RadixOptions
from jackfield_cache_prefix.radix import jackfield_prefix_cache
from jackfield_cache_prefix.radix_cache import RadixCache
from jackfield_cache_prefix.radix_tree import Node
from jackfield_cache_prefix.strategies import Order, Strategy, make_strategy

EVICTIONS: tuple[Eviction, ...] = get_args(Eviction)


def key(tokens: list[int], priority: int = 0) -> CacheKey:
    return CacheKey(namespace=b"", tokens=np.array(tokens, dtype=np.int32), priority=priority)


def make(eviction: Eviction) -> RadixCache:
    cache = jackfield_prefix_cache(
        CacheContext(
            kind="cache",
            name="radix",
            instance="radix",
            options=RadixOptions(eviction=eviction),
            page_size=1,
            total_slots=1000,
        )
    )
    assert isinstance(cache, RadixCache)
    return cache


def use(cache: RadixCache, what: CacheKey) -> None:
    """A whole request over these tokens; what is not cached yet is stored in the slots 100 * last token and following."""
    lease = cache.acquire(what, len(what.tokens))
    fresh = 100 * int(what.tokens[-1]) + np.arange(lease.length, len(what.tokens), dtype=np.int32)
    cache.commit(lease, what, np.concatenate([lease.slots, fresh]).astype(np.int32), final=True)
    cache.release(lease)
    cache.check()


def order_of_eviction(cache: RadixCache) -> list[int]:
    """Last tokens of the leaves, as they go one by one."""
    gone = []
    while len(slots := cache.evict(Amounts(slots=1)).slots):
        cache.check()
        gone.append(int(slots[0]) // 100)
    return gone


@pytest.mark.parametrize(
    ("eviction", "order"),
    [
        ("lru", [3, 4, 1, 2]),
        ("mru", [2, 1, 4, 3]),
        ("lfu", [3, 4, 2, 1]),
        ("fifo", [1, 2, 3, 4]),
        ("filo", [4, 3, 2, 1]),
        ("priority", [4, 1, 2, 3]),
        ("slru", [3, 4, 1, 2]),
    ],
)
def test_each_strategy_has_its_order(eviction: Eviction, order: list[int]) -> None:
    """1 is used three times, 2 twice and last, 3 by an urgent request, 4 by one that is less urgent than usual."""
    cache = make(eviction)
    for token, priority in ((1, 0), (2, 0), (3, 5), (4, -5), (1, 0), (1, 0), (2, 0)):
        use(cache, key([token], priority))
    assert order_of_eviction(cache) == order


def test_slru_keeps_what_came_back_however_long_ago() -> None:
    """lru would let the scan of one-time prompts push it out."""
    for eviction, first in (("slru", 2), ("lru", 1)):
        cache = make(eviction)  # type: ignore[arg-type]
        for token in (1, 1, 2, 3, 4, 5):
            use(cache, key([token]))
        assert order_of_eviction(cache)[0] == first


def test_a_priority_lasts_and_the_highest_counts() -> None:
    cache = make("priority")
    for token, priority in ((1, 7), (1, -7), (2, 3), (3, -2), (3, -1), (4, 0)):
        use(cache, key([token], priority))
    assert order_of_eviction(cache) == [3, 4, 2, 1]


def test_a_prefix_has_what_was_done_through_it() -> None:
    """The shared head is used by all three requests; a branch by its own alone, also after the split that made it."""
    cache = make("lfu")
    for token in (1, 2, 2):
        use(cache, key([9, 9, token]))
    node = next(node for node in cache.tree.nodes() if node.tokens.tolist() == [9, 9])
    assert node.uses == 3
    assert {child.tokens.tolist()[-1]: child.uses for child in node.children.values()} == {1: 1, 2: 2}


@pytest.mark.parametrize(
    ("eviction", "order"), [("lfu", [1, 2]), ("slru", [1, 2]), ("priority", [1, 2]), ("lru", [2, 1])]
)
def test_an_admission_that_is_taken_back_is_no_use(eviction: Eviction, order: list[int]) -> None:
    """A request at the head that does not fit is looked up in every step. That renews the recency, and nothing else."""
    cache = make(eviction)
    for token in (1, 2, 2):
        use(cache, key([token], token))
    for _ in range(9):
        cache.release(cache.acquire(key([1, 7], 9), 1))
    assert order_of_eviction(cache) == order


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_b55_no_strategy_touches_a_leased_path(eviction: Eviction) -> None:
    """B55: whatever its key is, the leased node and all above it stay."""
    cache = make(eviction)
    for token in range(1, 9):
        use(cache, key([9, token], token))
    leases = [cache.acquire(key([9, token]), 2) for token in (1, 8)]
    assert sorted(order_of_eviction(cache)) == [2, 3, 4, 5, 6, 7]
    for lease in leases:
        assert cache.peek([key([9, int(lease.slots[1]) // 100])]).tolist() == [2]
        cache.release(lease)
    assert len(order_of_eviction(cache)) == 3
    assert cache.sizes().evictable == 0


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_stale_entries_are_bounded(eviction: Eviction) -> None:
    """Ten leaves, used thousands of times: the queue holds some spare entries and never one a use."""
    cache = make(eviction)
    for token in range(10):
        use(cache, key([9, token]))
    for turn in range(3000):
        cache.release(cache.acquire(key([9, turn % 10]), 2))
        assert len(cache.queue._heap) <= 2 * 10 + 64
    assert len(list(cache.queue)) == 10
    assert len(order_of_eviction(cache)) == 11


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_an_eviction_costs_what_it_evicts(eviction: Eviction, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys computed: one a push. Evicting k leaves of 4,000 computes none for the others."""
    strategy = make_strategy(eviction)
    computed: list[Order] = []
    real = type(strategy).key

    def counting(self: Strategy, leaf: Node) -> Order:
        computed.append(real(self, leaf))
        return computed[-1]

    monkeypatch.setattr(type(strategy), "key", counting)
    cache = make(eviction)
    for token in range(4000):
        what = key([token])
        lease = cache.acquire(what, 0)
        cache.commit(lease, what, np.array([token], dtype=np.int32), final=True)
        cache.release(lease)
    assert len(computed) == 4000
    assert len(cache.evict(Amounts(slots=50)).slots) == 50
    assert len(computed) == 4000
    cache.check()


def test_unknown_strategies_are_refused_with_the_names() -> None:
    with pytest.raises(ValidationError, match="slru"):
        RadixOptions(eviction="tlru")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lru, lfu, fifo, mru, filo, priority, slru"):
        RadixCache(1, "tlru")  # type: ignore[arg-type]


def test_a_split_and_a_trim_keep_the_order() -> None:
    """The lower part of a split leaf keeps its place, and so does what a trim leaves."""
    cache = make("fifo")
    use(cache, key([4, 3, 2, 1]))
    use(cache, key([5, 2]))
    cache.release(cache.acquire(key([4, 3, 5]), 3))
    born = {tuple(node.tokens.tolist()): node.born for node in cache.tree.nodes()}
    assert born == {(4, 3): 1, (2, 1): 1, (5, 2): 2}
    assert order_of_eviction(cache) == [1, 1, 1, 1, 2, 2]
