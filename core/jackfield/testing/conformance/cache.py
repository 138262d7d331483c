"""The conformance suite of kind `cache`: each rule of `PrefixCache` by itself, all of them against a model under random
requests, and the cache inside a whole scheduler. Says nothing of which prefix goes first. Needs no torch.
"""

from __future__ import annotations

import numpy as np
import pytest

from jackfield.hookspecs import Amounts, CacheKey, PrefixCache
from jackfield.testing.conformance.cache_keys import make_key
from jackfield.testing.conformance.cache_machine import run_machine
from jackfield.testing.conformance.cache_rig import PAGE, CacheRig, row
from jackfield.testing.conformance.guards import bytecodes, forbidden_acts, shallow_stack
from jackfield.testing.conformance.snapshot import changed, snapshot
from jackfield.testing.conformance.walks import abort_walk
from jackfield.testing.scheduler_harness import SchedulerHarness

LONG = 100_000
DEEP = 200


class CacheConformance(CacheRig):
    """Every check."""

    def test_peek_is_pure(self) -> None:
        """`peek` answers int32 lengths in whole pages and changes nothing: no recency, no split."""
        cache = self.cache()
        self.put(cache, list(range(18)), 100)
        keys = [make_key(b"", tokens) for tokens in ([0, 1, 2, 3, 4, 5, 77], list(range(40)), [], [9])]
        before = snapshot(cache)
        lengths = cache.peek(keys)
        assert lengths.dtype == np.int32, f"peek answered {lengths.dtype}, not int32"
        assert len(lengths) == len(keys)
        assert (lengths % PAGE == 0).all(), f"peek answered {lengths.tolist()}, not whole pages of {PAGE}"
        assert cache.peek(keys).tolist() == lengths.tolist()
        where = changed(before, snapshot(cache))
        assert not where, f"peek changed the cache: {where}"
        assert len(cache.peek([])) == 0
        if "forest" in self.manifest().features:
            cache.forest(keys)
            where = changed(before, snapshot(cache))
            assert not where, f"forest changed the cache: {where}"

    def test_arrays_are_the_callers(self) -> None:
        """The arrays of slots that `commit` is given are the caller's: what stands in them later is not the cache's."""
        cache, tokens = self.cache(), list(range(17))
        key = make_key(b"", tokens)
        lease = cache.acquire(key, 16)
        slots = row(lease, 17, 100)
        kept = cache.commit(lease, key, slots, final=True).length
        slots[:] = 7
        cache.release(lease)
        lease = cache.acquire(key, 16)
        found = lease.slots.tolist()
        assert found == list(range(100, 100 + len(found))), (
            "the caller used its array again, and the cache's slots changed"
        )
        cache.release(lease)
        assert sorted(cache.reset().slots.tolist()) == list(range(100, 100 + kept)), "the cache gives back other slots"

    def test_sizes_costs_the_same_with_many(self) -> None:
        """`sizes` is asked in every step: its bytecodes do not grow with what the cache holds."""
        counts = []
        for prefixes in (4, 400):
            cache = self.cache()
            for i in range(prefixes):
                self.put(cache, [i] * 8, 8 + 8 * i)
            counts.append(bytecodes(cache.sizes))
        assert counts[1] <= 2 * max(counts[0], 200), f"sizes takes {counts} bytecodes with 4 and with 400 prefixes"

    def test_acquire_holds_what_peek_told_up_to_the_limit(self) -> None:
        """`acquire` holds the longest cached prefix of whole pages within its limit, with one slot a token."""
        cache, key = self.cache(), make_key(b"", list(range(19)))
        self.put(cache, list(range(18)), 100)
        (known,) = cache.peek([key]).tolist()
        for limit in (0, 1, PAGE, PAGE + 1, 11, 16, 18, 10**6):
            lease = cache.acquire(key, limit)
            assert lease.length == min(known, limit // PAGE * PAGE), f"limit {limit}, {known} cached: {lease.length}"
            assert lease.slots.dtype == np.int32
            assert lease.slots.tolist() == list(range(100, 100 + lease.length)), "a slot of another token"
            cache.release(lease)

    def test_what_was_committed_is_found(self) -> None:
        """With the feature `cached_tokens`: what one request computed, the next one finds, also after a chunk."""
        self.needs_feature("cached_tokens")
        cache, tokens = self.cache(), list(range(19))
        key = make_key(b"", tokens)
        lease = cache.acquire(key, 18)
        cache.commit(lease, make_key(b"", tokens[:9]), row(lease, 9, 100), final=False)
        assert cache.peek([key]).tolist() == [8], "a chunk that was committed is not found"
        cache.commit(lease, key, row(lease, 19, 100), final=True)
        cache.release(lease)
        assert cache.peek([key]).tolist() == [16], "what a request computed is not found after its end"

    def test_duplicates_go_back_to_the_caller(self) -> None:
        """Two requests compute the same tokens: one copy stays, the other's slots are freed, and its row is told."""
        cache = self.cache()
        self.stores(cache)
        key = make_key(b"", list(range(10)))
        one, two = cache.acquire(key, 9), cache.acquire(key, 9)
        first = cache.commit(one, key, row(one, 10, 100), final=True)
        second = cache.commit(two, key, row(two, 10, 200), final=True)
        assert len(first.free.slots) == 0
        assert first.length == second.length, f"of the same tokens it keeps {first.length}, then {second.length}"
        assert second.slots.tolist() == first.slots.tolist() == two.slots.tolist(), "the row is told other slots"
        assert sorted(second.free.slots.tolist()) == list(range(200, 200 + second.length)), (
            "duplicates are not given back"
        )
        cache.release(one)
        cache.release(two)

    def test_a_lease_ends_once(self) -> None:
        """A second `release` raises RuntimeError and changes nothing; so does a `commit` that comes after."""
        cache, key = self.cache(), make_key(b"", list(range(9)))
        lease = cache.acquire(key, 8)
        other = cache.acquire(key, 8)
        cache.commit(lease, key, row(lease, 9, 100), final=True)
        cache.release(lease)
        before = snapshot(cache)
        with pytest.raises(RuntimeError):
            cache.release(lease)
        assert snapshot(cache) == before, "a refused release changed the cache"
        cache.release(other)
        cache.reset()

    def test_leased_slots_are_never_evicted(self) -> None:
        """Whatever is asked for, `evict` takes nothing that a lease holds; after the release it can."""
        cache = self.cache()
        self.stores(cache)
        self.put(cache, list(range(16)), 100)
        lease = cache.acquire(make_key(b"", list(range(16))), 12)
        freed = cache.evict(Amounts(slots=10**6)).slots.tolist()
        assert not set(freed) & set(lease.slots.tolist()), "it gave slots back that a lease holds"
        assert cache.peek([make_key(b"", list(range(16)))]).tolist() == [lease.length]
        cache.release(lease)
        assert len(cache.evict(Amounts(slots=10**6)).slots) == lease.length

    def test_evict_gives_what_is_asked(self) -> None:
        """`evict` gives at least what is asked for if that much is evictable, in whole pages, and nothing for nothing."""
        cache = self.cache()
        self.stores(cache)
        for i in range(6):
            self.put(cache, [i] * 8, 100 + 8 * i)
        assert len(cache.evict(Amounts(slots=0)).slots) == 0, "it evicts though nothing is asked for"
        for need in (PAGE, 3 * PAGE, 10**6):
            before = cache.sizes().evictable
            freed = cache.evict(Amounts(slots=need)).slots
            assert freed.dtype == np.int32
            assert len(freed) >= min(need, before), f"{need} asked, {before} evictable: {len(freed)}"
            assert cache.sizes().evictable == before - len(freed), "sizes and evict disagree"
        assert cache.sizes().evictable == 0

    def test_namespaces_and_marks_are_apart(self) -> None:
        """Keys of different namespaces share nothing, and keys with different media share nothing behind the mark."""
        cache, tokens = self.cache(), list(range(12))
        self.put(cache, tokens, 100)
        assert cache.peek([make_key(b"other", tokens)]).tolist() == [0], "another namespace finds it"
        plain = make_key(b"", tokens)
        for digests in ((b"cat",), (b"dog",)):
            marks = tuple((5, digest) for digest in digests)
            marked = CacheKey(namespace=b"", tokens=plain.tokens, marks=marks)
            assert cache.peek([marked])[0] <= PAGE, f"media {digests} find what is behind position 5 of others"
            lease = cache.acquire(marked, 12)
            assert lease.length <= PAGE
            cache.commit(lease, marked, row(lease, 12, 200 if digests == (b"cat",) else 300), final=True)
            cache.release(lease)
        lease = cache.acquire(plain, 12)
        assert set(lease.slots.tolist()) <= set(range(100, 112)), "a key without media got slots of media"
        cache.release(lease)
        cache.check()

    def test_sizes_are_the_slots_it_owns(self) -> None:
        """`sizes` counts every slot that the cache owns once: leased ones as protected, the others as evictable."""
        cache = self.cache()
        owned = sum(self.put(cache, [i] * 11, 100 + 16 * i) for i in range(3))
        sizes = cache.sizes()
        assert (sizes.evictable, sizes.protected, sizes.pending) == (owned, 0, 0)
        leases = [cache.acquire(make_key(b"", [1] * 11), limit) for limit in (8, 4)]
        held = max(lease.length for lease in leases)
        assert (cache.sizes().protected, cache.sizes().evictable) == (held, owned - held), "two leases on one prefix"
        for lease in leases:
            cache.release(lease)
        assert cache.sizes() == sizes, "what was protected is not evictable again"

    def test_reset_waits_for_leases_and_gives_all_back(self) -> None:
        """`reset` raises RuntimeError while a lease exists, then gives every slot back and knows nothing any more."""
        cache, key = self.cache(), make_key(b"", list(range(16)))
        owned = self.put(cache, list(range(16)), 100)
        lease = cache.acquire(key, 0)
        before = snapshot(cache)
        with pytest.raises(RuntimeError):
            cache.reset()
        assert snapshot(cache) == before, "a refused reset changed the cache"
        cache.release(lease)
        assert sorted(cache.reset().slots.tolist()) == list(range(100, 100 + owned))
        assert cache.peek([key]).tolist() == [0]
        sizes = cache.sizes()
        assert (sizes.evictable, sizes.protected, sizes.pending) == (0, 0, 0)
        cache.check()

    def test_nothing_is_told_to_nobody(self) -> None:
        """Without `events` and `evicted` in its context it collects neither, so that nothing grows unread."""
        cache = self.cache()
        self.put(cache, list(range(16)), 100)
        cache.evict(Amounts(slots=16))
        assert cache.take_events() == []
        assert cache.take_evicted() == []

    def test_events_are_enough_to_follow_it(self) -> None:
        """What is stored, removed and cleared is told in order, so that a router's copy holds exactly what the cache does."""
        if type(self.cache()).take_events is PrefixCache.take_events:
            self.not_claimed("take_events is not overridden")
        model = self.model(PAGE)
        for tokens in (list(range(16)), [*range(9), 70, 71, 72, 73], [*range(16), 80, 81, 82, 83]):
            model.arrive(b"", tokens, len(tokens))
            model.compute(-1, len(tokens) - model.requests[-1].lease.length)
            model.commit(-1, True)
            model.leave(-1)
            model.follow_events()
        assert model.mirror, "nothing was told of three requests"
        model.evict(2)
        model.follow_events()
        model.reset()
        model.follow_events()
        assert not model.mirror, "the reset was not told"

    @pytest.mark.parametrize("page_size", [1, 16])
    def test_long_keys(self, page_size: int) -> None:
        """A prompt of 100,000 tokens is committed, found and forgotten."""
        cache, tokens = self.cache(page_size), np.arange(LONG, dtype=np.int32)
        key = CacheKey(namespace=b"", tokens=tokens)
        lease = cache.acquire(key, LONG)
        cache.commit(lease, key, np.arange(LONG, dtype=np.int32) + page_size, final=True)
        cache.release(lease)
        self.measured(f"bytecodes of peek, {LONG:,} tokens, pages of {page_size}", bytecodes(lambda: cache.peek([key])))
        assert len(cache.reset().slots) == LONG // page_size * page_size or not cache.peek([key])[0]

    @pytest.mark.parametrize("page_size", [1, 16])
    def test_deep_trees(self, page_size: int) -> None:
        """Prefixes that part at 200 places need no deeper stack than others."""
        cache = self.cache(page_size)
        with shallow_stack():
            first = page_size
            for i in range(1, DEEP):
                branch = [*range(i * page_size), *[10**6 + i] * page_size]
                known = int(cache.peek([make_key(b"", branch)])[0])
                self.put(cache, branch, first)
                first += len(branch) - known
            if "forest" in self.manifest().features:
                cache.forest([make_key(b"", branch)])
            cache.check()
            cache.evict(Amounts(slots=cache.sizes().evictable // 2))
            cache.check()
        cache.reset()

    def test_no_clock_random_thread_or_io(self) -> None:
        """No method reads a clock, a global random generator or the system's, starts a thread, waits or does I/O."""
        features = self.manifest().features
        cache = self.cache(events=True, evicted="evicted" in features)

        def everything() -> None:
            self.put(cache, list(range(16)), 100)
            cache.forest([make_key(b"", list(range(16)))])
            cache.evict(Amounts(slots=8))
            cache.poll(), cache.take_events(), cache.take_evicted(), cache.sizes(), cache.check()
            cache.reset()

        everything()  # what is imported at the first call is not I/O of the cache
        acts = forbidden_acts(everything)
        assert not acts, "; ".join(acts)

    @pytest.mark.parametrize("page_size", [1, 4, 16])
    def test_any_requests_agree_with_a_model(self, page_size: int) -> None:
        """Under any sequence of requests, evictions and resets every slot, length and sum is that of a set of prefixes."""
        run_machine(lambda: self.model(page_size))

    @pytest.mark.parametrize(("page_size", "window"), [(1, 1), (1, 5), (4, 3), (4, 13), (16, 20)])
    def test_any_windows_agree_with_a_model(self, page_size: int, window: int) -> None:
        """With the feature `window`: no lease loses KV that its window layers read, and the window pool's sums are exact."""
        self.needs_feature("window")
        run_machine(lambda: self.model(page_size, window))

    @pytest.mark.parametrize("page_size", [1, 4])
    def test_in_a_whole_scheduler(self, page_size: int) -> None:
        """In a scheduler whose pool is too small, with aborts, every token is right and every slot comes back."""
        cache = self.make(page_size=page_size, total_slots=96)
        run = SchedulerHarness(
            cache=cache,
            page_size=page_size,
            total_slots=96,
            max_running_requests=4,
            context_length=64,
            max_prefill_tokens=24,
        )
        abort_walk(run, run.turn, seed=page_size, requests=40)
