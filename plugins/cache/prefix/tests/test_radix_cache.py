"""The radix cache by example: matching, commits, leases, eviction order, namespaces, marks and events."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from jackfield.hookspecs import Amounts, CacheContext, CacheEvent, CacheKey, CacheSizes, Lease, PrefixCache
from jackfield_cache_prefix.options import RadixOptions
from jackfield_cache_prefix.radix import jackfield_prefix_cache
from jackfield_cache_prefix.radix_cache import RadixCache

Ints = NDArray[np.int32]


def key(
    tokens: Ints | list[int] | range, namespace: bytes = b"", marks: tuple[tuple[int, bytes], ...] = ()
) -> CacheKey:
    return CacheKey(namespace=namespace, tokens=np.array(tokens, dtype=np.int32), marks=marks)


def slots(start: int, count: int) -> Ints:
    return np.arange(start, start + count, dtype=np.int32)


def make(page_size: int = 1, *, events: bool = False) -> PrefixCache:
    return jackfield_prefix_cache(
        CacheContext(
            kind="cache",
            name="radix",
            instance="radix",
            options=RadixOptions(),
            page_size=page_size,
            total_slots=1000,
            events=events,
        )
    )


def store(cache: PrefixCache, what: CacheKey, at: int) -> None:
    """A whole request: match, commit all its tokens with new slots from `at`, release."""
    lease = cache.acquire(what, len(what.tokens))
    held = np.concatenate([lease.slots, slots(at, len(what.tokens) - lease.length)]).astype(np.int32)
    cache.commit(lease, what, held, final=True)
    cache.release(lease)
    cache.check()


def cached(cache: PrefixCache, what: CacheKey) -> int:
    return int(cache.peek([what])[0])


def test_an_empty_cache_matches_nothing() -> None:
    cache = make()
    lease = cache.acquire(key([1, 2, 3]), 2)
    assert lease.length == 0
    assert lease.slots.dtype == np.int32
    assert len(lease.slots) == 0
    cache.release(lease)
    assert cache.sizes() == CacheSizes(evictable=0, protected=0)
    cache.check()


def test_a_stored_prefix_is_found_with_its_slots() -> None:
    cache = make()
    store(cache, key([1, 2, 3, 4]), 10)
    lease = cache.acquire(key([1, 2, 3, 9]), 3)
    assert lease.length == 3
    assert lease.slots.tolist() == [10, 11, 12]
    assert cache.sizes() == CacheSizes(evictable=1, protected=3)
    cache.release(lease)
    assert cache.sizes() == CacheSizes(evictable=4, protected=0)
    cache.check()


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 32, 400])
def test_b54_an_exact_repeat_leaves_the_last_token_to_compute(page_size: int, length: int) -> None:
    """B54: cached tokens are the largest page multiple below the prompt's length, each time the same."""
    cache = make(page_size)
    prompt = key(range(length))
    expected = (length - 1) // page_size * page_size
    next_slot = 1000
    for attempt in range(3):
        lease = cache.acquire(prompt, length - 1)
        assert lease.length == (0 if attempt == 0 else expected)
        held = np.concatenate([lease.slots, slots(next_slot, length - lease.length)]).astype(np.int32)
        next_slot += length
        done = cache.commit(lease, prompt, held, final=True)
        assert done.length == length // page_size * page_size
        cache.release(lease)
        cache.check()
        assert cache.sizes().evictable == length // page_size * page_size


def test_the_tail_of_a_page_stays_with_the_caller() -> None:
    cache = make(4)
    prompt = key(range(10))
    lease = cache.acquire(prompt, 9)
    done = cache.commit(lease, prompt, slots(100, 10), final=False)
    assert done.length == 8
    assert done.slots.tolist() == list(range(100, 108))
    assert len(done.free.slots) == 0
    assert lease.length == 8
    cache.release(lease)
    assert cache.sizes() == CacheSizes(evictable=8, protected=0)


def test_partly_equal_pages_share_nothing_of_that_page() -> None:
    cache = make(4)
    store(cache, key([1, 2, 3, 4, 5, 6, 7, 8]), 100)
    assert cached(cache, key([1, 2, 3, 4, 5, 6, 7, 0])) == 4
    store(cache, key([1, 2, 3, 4, 5, 6, 7, 0]), 200)
    assert cached(cache, key([1, 2, 3, 4, 5, 6, 7, 8])) == 8
    assert cached(cache, key([1, 2, 3, 0])) == 0
    assert cache.sizes().evictable == 12


def test_duplicates_go_back_to_the_caller_who_gets_the_tree_s_slots() -> None:
    cache = make(2)
    prompt = key([1, 2, 3, 4, 5, 6])
    first, second = cache.acquire(prompt, 5), cache.acquire(prompt, 5)
    cache.commit(first, key([1, 2, 3, 4, 7, 8]), slots(10, 6), final=True)
    done = cache.commit(second, prompt, slots(20, 6), final=True)
    assert done.slots.tolist() == [10, 11, 12, 13, 24, 25]
    assert done.free.slots.tolist() == [20, 21, 22, 23]
    assert second.slots.tolist() == done.slots.tolist()
    cache.check()
    cache.release(first)
    cache.release(second)
    assert cache.sizes() == CacheSizes(evictable=8, protected=0)


def test_chunks_grow_one_lease() -> None:
    cache = make(2)
    whole = list(range(7))
    lease = cache.acquire(key(whole), 6)
    row = slots(50, 7)
    for end, length in ((3, 2), (5, 4), (7, 6)):
        done = cache.commit(lease, key(whole[:end]), row[:end], final=end == 7)
        assert (done.length, lease.length) == (length, length)
        assert cache.sizes() == CacheSizes(evictable=0, protected=length)
        cache.check()
    cache.release(lease)
    assert cached(cache, key(whole)) == 6


def test_a_split_below_a_lease_keeps_it_right() -> None:
    cache = make()
    store(cache, key([1, 2, 3, 4, 5, 6]), 10)
    long = cache.acquire(key([1, 2, 3, 4, 5, 6]), 6)
    short = cache.acquire(key([1, 2, 9]), 3)
    assert short.slots.tolist() == [10, 11]
    assert long.slots.tolist() == [10, 11, 12, 13, 14, 15]
    cache.check()
    cache.release(long)
    assert cache.sizes() == CacheSizes(evictable=4, protected=2)
    assert sorted(cache.evict(Amounts(slots=100)).slots.tolist()) == [12, 13, 14, 15]
    cache.check()
    cache.release(short)
    assert cache.sizes() == CacheSizes(evictable=2, protected=0)


def test_b55_evicting_everything_spares_the_leased_path() -> None:
    """B55: the matched node and all above it survive; what came back is what could be freed."""
    cache = make()
    store(cache, key([1, 2, 3, 4]), 10)
    store(cache, key([1, 2, 8, 9]), 20)
    store(cache, key([5, 6]), 30)
    lease = cache.acquire(key([1, 2, 3, 7]), 4)
    freed = cache.evict(Amounts(slots=1000)).slots
    assert sorted(freed.tolist()) == [13, 20, 21, 30, 31]
    assert cache.sizes() == CacheSizes(evictable=0, protected=3)
    assert lease.slots.tolist() == [10, 11, 12]
    assert cached(cache, key([1, 2, 3, 4])) == 3
    assert len(cache.evict(Amounts(slots=1)).slots) == 0
    cache.check()
    cache.release(lease)
    assert sorted(cache.evict(Amounts(slots=1000)).slots.tolist()) == [10, 11, 12]
    cache.check()


def test_b55_a_lease_of_nothing_keeps_its_namespace_s_root() -> None:
    cache = make()
    lease = cache.acquire(key([1, 2], b"salt"), 1)
    store(cache, key([3, 4], b"salt"), 10)
    assert len(cache.evict(Amounts(slots=10)).slots) == 2
    done = cache.commit(lease, key([1, 2], b"salt"), slots(20, 2), final=True)
    assert done.length == 2
    cache.check()
    assert cached(cache, key([1, 2], b"salt")) == 2
    cache.release(lease)


def test_the_least_recently_released_goes_first_and_from_its_tail() -> None:
    cache = make(2)
    for at, first in ((10, 1), (20, 3), (30, 5)):
        store(cache, key([first] * 6), at)
    cache.release(cache.acquire(key([1] * 6), 6))
    assert cache.evict(Amounts(slots=2)).slots.tolist() == [24, 25]
    assert cached(cache, key([3] * 6)) == 4
    assert cache.evict(Amounts(slots=3)).slots.tolist() == [20, 21, 22, 23]
    assert cached(cache, key([3] * 6)) == 0
    assert cache.evict(Amounts(slots=6)).slots.tolist() == [30, 31, 32, 33, 34, 35]
    assert cached(cache, key([1] * 6)) == 6
    cache.check()


def test_a_parent_goes_after_its_children() -> None:
    cache = make()
    store(cache, key([1, 2, 3]), 10)
    store(cache, key([1, 2, 4]), 20)
    freed = [int(cache.evict(Amounts(slots=1)).slots[0]) for _ in range(4)]
    assert freed == [12, 20, 11, 10]
    assert cache.sizes() == CacheSizes(evictable=0, protected=0)


def test_b57_trimming_and_splitting_again_and_again_keeps_the_sums() -> None:
    """B57: the counters stay those of the tree."""
    cache = make(4)
    store(cache, key(range(400)), 1000)
    for kept in range(396, 40, -4):
        assert len(cache.evict(Amounts(slots=1)).slots) == 4
        assert cache.sizes() == CacheSizes(evictable=kept, protected=0)
        lease = cache.acquire(key(range(400)), kept // 2)
        cache.check()
        cache.release(lease)
        cache.check()


def test_namespaces_share_nothing_and_leave_nothing_behind() -> None:
    cache = make()
    store(cache, key([1, 2, 3], b"a"), 10)
    assert cached(cache, key([1, 2, 3], b"b")) == 0
    store(cache, key([1, 2, 3], b"b"), 20)
    assert cache.sizes().evictable == 6
    assert len(cache.evict(Amounts(slots=6)).slots) == 6
    for salt in range(50):
        cache.release(cache.acquire(key([1, 2], b"salt %d" % salt), 1))
    assert isinstance(cache, RadixCache)
    assert cache.tree.roots == {}
    cache.check()


def test_marks_are_part_of_the_key() -> None:
    cache = make()
    cat, dog = ((1, b"cat"),), ((1, b"dog"),)
    store(cache, key([1, 7, 3, 4], marks=cat), 10)
    assert cached(cache, key([1, 7, 3, 4], marks=cat)) == 4
    assert cached(cache, key([1, 7, 3, 4], marks=dog)) == 1
    assert cached(cache, key([1, 7, 3, 4])) == 1
    assert cached(cache, key([1, 8, 3, 4], marks=cat)) == 1
    assert cached(cache, key([1, 7, 3, 4], marks=((1, b"cat"), (1, b"dog")))) == 1
    assert cached(cache, key([1, 7, 3, 4], marks=((1, b"cat"), (9, b"beyond")))) == 4
    store(cache, key([1, 7, 3, 4], marks=dog), 20)
    assert cache.sizes().evictable == 7
    cache.evict(Amounts(slots=7))
    assert isinstance(cache, RadixCache)
    assert len(cache.marks) == 0
    cache.check()


def test_a_mark_never_met_before_does_not_match_the_bare_token() -> None:
    cache = make()
    store(cache, key([1, 7, 3]), 10)
    assert cached(cache, key([1, 7, 3], marks=((1, b"cat"),))) == 1
    lease = cache.acquire(key([1, 7, 3], marks=((1, b"cat"),)), 3)
    assert lease.slots.tolist() == [10]
    cache.release(lease)


def test_marks_survive_trims_and_splits() -> None:
    cache = make()
    marks = ((1, b"a"), (3, b"b"))
    store(cache, key([1, 7, 3, 7, 5], marks=marks), 10)
    cache.evict(Amounts(slots=2))
    cache.check()
    assert cached(cache, key([1, 7, 3, 7, 5], marks=marks)) == 3
    store(cache, key([1, 7, 2], marks=marks), 30)
    assert cached(cache, key([1, 7, 3], marks=marks)) == 3


def test_peek_changes_nothing() -> None:
    cache = make()
    store(cache, key([1, 2, 3, 4]), 10)
    store(cache, key([5, 6]), 20)
    assert cache.peek([key([1, 2]), key([5, 6, 7]), key([]), key([9])]).tolist() == [2, 2, 0, 0]
    assert isinstance(cache, RadixCache)
    assert sum(1 for _ in cache.tree.nodes()) == 2
    assert cache.evict(Amounts(slots=1)).slots.tolist() == [13]


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 5, 100])
def test_a_match_is_never_longer_than_its_limit(limit: int) -> None:
    cache = make(2)
    store(cache, key(range(6)), 10)
    lease = cache.acquire(key(range(6)), limit)
    assert lease.length == min(6, limit // 2 * 2)
    cache.release(lease)
    cache.check()


def test_events_tell_whole_prefixes() -> None:
    cache = make(2, events=True)
    store(cache, key([1, 2, 3, 4], b"n", ((0, b"picture"),)), 10)
    store(cache, key([1, 2, 5, 6], b"n", ((0, b"picture"),)), 20)
    cache.evict(Amounts(slots=2))
    assert cache.take_events() == [
        CacheEvent(action="stored", namespace=b"n", tokens=(1, 2, 3, 4), length=4),
        CacheEvent(action="stored", namespace=b"n", tokens=(1, 2, 5, 6), length=2),
        CacheEvent(action="removed", namespace=b"n", tokens=(1, 2, 3, 4), length=2),
    ]
    assert cache.take_events() == []
    cache.reset()
    assert [event.action for event in cache.take_events()] == ["cleared"]


def test_no_events_are_kept_when_nobody_listens() -> None:
    cache = make()
    store(cache, key([1, 2]), 10)
    assert cache.take_events() == []


def test_reset_gives_all_slots_back_but_not_under_a_lease() -> None:
    cache = make()
    store(cache, key([1, 2, 3]), 10)
    store(cache, key([1, 5]), 20)
    lease = cache.acquire(key([1, 5]), 1)
    with pytest.raises(RuntimeError, match="1 leases"):
        cache.reset()
    cache.release(lease)
    assert sorted(cache.reset().slots.tolist()) == [10, 11, 12, 20]
    assert cache.sizes() == CacheSizes(evictable=0, protected=0)
    assert cached(cache, key([1, 2, 3])) == 0
    assert len(cache.evict(Amounts(slots=1)).slots) == 0
    cache.check()


def test_misuse_is_refused_and_changes_nothing() -> None:
    cache = make(2)
    prompt = key([1, 2, 3, 4])
    store(cache, prompt, 10)
    lease = cache.acquire(prompt, 3)
    before = cache.sizes()
    longer = key([1, 2, 3, 4, 5, 6])
    with pytest.raises(ValueError, match="not rewritten"):
        cache.commit(lease, longer, slots(40, 6), final=False)
    with pytest.raises(RuntimeError, match="two owners"):
        cache.commit(lease, longer, slots(10, 6), final=False)
    with pytest.raises(ValueError, match="slots for"):
        cache.commit(lease, longer, slots(10, 5), final=False)
    with pytest.raises(ValueError, match="namespace"):
        cache.commit(lease, key([1, 2, 3, 4], b"other"), slots(10, 4), final=False)
    with pytest.raises(ValueError, match="1 tokens are committed"):
        cache.commit(lease, key([1]), slots(10, 1), final=False)
    with pytest.raises(ValueError, match="negative"):
        cache.commit(lease, key([1, 2, -3, 4]), np.array([10, 11, 40, 41], dtype=np.int32), final=False)
    with pytest.raises(ValueError, match="limit"):
        cache.acquire(prompt, -1)
    assert cache.sizes() == before
    cache.check()
    done = cache.commit(lease, prompt, np.array([10, 11, 40, 41], dtype=np.int32), final=True)
    assert done.free.slots.tolist() == [40, 41]
    with pytest.raises(RuntimeError, match="final"):
        cache.commit(lease, prompt, done.slots, final=True)
    cache.release(lease)
    with pytest.raises(RuntimeError, match="released"):
        cache.release(lease)
    with pytest.raises(RuntimeError, match="released"):
        cache.commit(lease, prompt, done.slots, final=True)
    with pytest.raises(RuntimeError, match="released"):
        make(2).release(Lease(0, slots(0, 0)))
    cache.check()


def test_slots_that_were_handed_out_cannot_be_written() -> None:
    cache = make()
    row = slots(10, 3)
    prompt = key([1, 2, 3])
    lease = cache.acquire(prompt, 2)
    done = cache.commit(lease, prompt, row, final=True)
    row[:] = 0
    assert done.slots.tolist() == [10, 11, 12]
    with pytest.raises(ValueError, match="read-only"):
        lease.slots[0] = 5
    cache.release(lease)
    assert cache.acquire(prompt, 3).slots.tolist() == [10, 11, 12]


def test_a_damaged_tree_fails_its_check() -> None:
    cache = make()
    assert isinstance(cache, RadixCache)
    store(cache, key([1, 2, 3]), 10)
    node = next(iter(cache.tree.nodes()))
    node.refs = 1
    with pytest.raises(AssertionError, match="counts 1 leases"):
        cache.check()
    node.refs = 0
    good, node.slots = node.slots, np.array([10, 10, 12], dtype=np.int32)
    with pytest.raises(AssertionError, match="twice"):
        cache.check()
    node.slots = good
    cache._evictable += 1
    with pytest.raises(AssertionError, match="evictable says 4"):
        cache.check()


def test_a_tree_as_deep_as_a_long_talk_needs_no_recursion() -> None:
    cache = make()
    tokens = np.arange(5000, dtype=np.int32)
    lease = cache.acquire(key(tokens), 0)
    row = slots(10, 5000)
    for end in range(1, 5001):
        cache.commit(lease, key(tokens[:end]), row[:end], final=end == 5000)
    cache.release(lease)
    cache.check()
    assert cached(cache, key(tokens)) == 5000
    assert sorted(cache.evict(Amounts(slots=5000)).slots.tolist()) == row.tolist()
    cache.check()


def test_the_queue_does_not_grow_with_releases() -> None:
    cache = make()
    assert isinstance(cache, RadixCache)
    store(cache, key([1, 2, 3]), 10)
    for _ in range(5000):
        cache.release(cache.acquire(key([1, 2, 3]), 3))
    assert len(cache.queue._heap) < 300
    cache.check()
