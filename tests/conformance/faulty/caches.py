"""Prefix caches with one fault each, on top of the slow twin that the testing tools have."""

from __future__ import annotations

import operator
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from jackfield.hookspecs import Amounts, CacheEvent, CacheKey, CacheSizes, Committed, Freed, PrefixCache, hookimpl
from jackfield.testing.page_cache import PageCache

CAUGHT = {
    "good": (),
    "peek-touches": ("peek_is_pure",),
    "peek-in-tokens": ("peek_is_pure", "*"),
    "no-limit": ("acquire_holds_what_peek_told_up_to_the_limit", "leased_slots_are_never_evicted"),
    "forgets-chunks": ("what_was_committed_is_found",),
    "keeps-duplicates": ("duplicates_go_back_to_the_caller",),
    "releases-twice": ("a_lease_ends_once",),
    "evicts-leased": ("leased_slots_are_never_evicted", "sizes_are_the_slots_it_owns"),
    "evicts-one-page": (
        "evict_gives_what_is_asked",
        "leased_slots_are_never_evicted",
        "events_are_enough_to_follow_it",
    ),
    "one-namespace": ("namespaces_and_marks_are_apart",),
    "no-media": ("namespaces_and_marks_are_apart",),
    "counts-at-each-question": ("sizes_costs_the_same_with_many",),
    "keeps-the-callers-array": ("arrays_are_the_callers",),
    "forest-touches": ("peek_is_pure",),
    "first-page-alone": (),
    "sizes-in-pages": ("sizes_are_the_slots_it_owns", "evict_gives_what_is_asked"),
    "resets-at-once": ("reset_waits_for_leases_and_gives_all_back",),
    "tells-nobody": ("nothing_is_told_to_nobody",),
    "swallows-removals": ("events_are_enough_to_follow_it",),
    "clock-recency": ("no_clock_random_thread_or_io",),
}
LEASES = operator.attrgetter("leases")
SLOWLY = {"forgets-a-lock": "any_requests_agree_with_a_model", "recursive": "deep_trees"}


class Good(PageCache):
    """The twin, and what it does told as events if anybody listens."""

    def __init__(self, page_size: int, events: bool) -> None:
        super().__init__(page_size)
        self.listened, self.told = events, list[CacheEvent]()

    def sizes(self) -> CacheSizes:
        """The twin counts page by page; this counts in C, where nobody looks."""
        leased = len(self._pages) - [*map(LEASES, self._pages.values())].count(0)
        return CacheSizes(evictable=(len(self._pages) - leased) * self._size, protected=leased * self._size)

    def tell(self, action: str, names: Sequence[Any]) -> None:
        if self.listened:
            tokens = [tuple(np.frombuffer(name[1], dtype=np.int32).tolist()) for name in names]
            self.told += [
                CacheEvent(action=action, namespace=name[0], tokens=told, length=self._size)
                for name, told in zip(names, tokens, strict=True)
            ]

    def commit(self, lease: Any, key: CacheKey, slots: Any, *, final: bool) -> Committed:
        before = set(self._pages)
        done = super().commit(lease, key, slots, final=final)
        self.tell("stored", [name for name in self._pages if name not in before])
        return done

    def evict(self, need: Amounts) -> Freed:
        before = list(self._pages)
        freed = super().evict(need)
        self.tell("removed", [name for name in before if name not in self._pages])
        return freed

    def reset(self) -> Freed:
        freed = super().reset()
        if self.listened:
            self.told.append(CacheEvent(action="cleared"))
        return freed

    def take_events(self) -> list[CacheEvent]:
        told, self.told = self.told, []
        return told


class PeekTouches(Good):
    def peek(self, keys: Any) -> Any:
        self._tick += 1
        return super().peek(keys)


class PeekInTokens(Good):
    def peek(self, keys: Any) -> Any:
        lengths = super().peek(keys)
        return np.array(
            [min(n + 1, len(key.tokens)) if n else 0 for n, key in zip(lengths, keys, strict=True)], np.int32
        )


class NoLimit(Good):
    def acquire(self, key: CacheKey, limit: int) -> Any:
        return super().acquire(key, len(key.tokens))


class ForgetsChunks(Good):
    def commit(self, lease: Any, key: CacheKey, slots: Any, *, final: bool) -> Committed:
        if final:
            return super().commit(lease, key, slots, final=True)
        return Committed(length=lease.length, slots=lease.slots, free=Freed())


class KeepsDuplicates(Good):
    def commit(self, lease: Any, key: CacheKey, slots: Any, *, final: bool) -> Committed:
        done = super().commit(lease, key, slots, final=final)
        return Committed(length=done.length, slots=done.slots, free=Freed())


class ReleasesTwice(Good):
    def release(self, lease: Any) -> None:
        if not lease.released:
            super().release(lease)


class EvictsLeased(Good):
    def evict(self, need: Amounts) -> Freed:
        freed = super().evict(need)
        leased = [name for name, page in self._pages.items() if page.leases and not page.children]
        if len(freed.slots) >= need.slots or not leased:
            return freed
        gone = self._pages.pop(leased[0])
        if gone.parent is not None:
            self._pages[gone.parent].children -= 1
        return Freed(slots=np.concatenate([freed.slots, gone.slots]))

    def release(self, lease: Any) -> None:
        lease.pages = [name for name in lease.pages if name in self._pages]
        super().release(lease)


class EvictsOnePage(Good):
    def evict(self, need: Amounts) -> Freed:
        return super().evict(Amounts(slots=min(need.slots, 1)))


class OneNamespace(Good):
    def _names(self, key: CacheKey, limit: int) -> Any:
        return super()._names(CacheKey(namespace=b"", tokens=key.tokens, marks=key.marks), limit)


class NoMedia(Good):
    def _names(self, key: CacheKey, limit: int) -> Any:
        return super()._names(CacheKey(namespace=key.namespace, tokens=key.tokens), limit)


class SizesInPages(Good):
    def sizes(self) -> CacheSizes:
        sizes = super().sizes()
        return CacheSizes(evictable=sizes.evictable // self._size, protected=sizes.protected)


class ResetsAtOnce(Good):
    def reset(self) -> Freed:
        self._leases = 0
        return super().reset()

    def release(self, lease: Any) -> None:
        lease.pages = [name for name in lease.pages if name in self._pages]
        super().release(lease)


class TellsNobody(Good):
    def __init__(self, page_size: int, events: bool) -> None:
        super().__init__(page_size, events=True)


class SwallowsRemovals(Good):
    def tell(self, action: str, names: Sequence[Any]) -> None:
        if action != "removed":
            super().tell(action, names)


class CountsAtEachQuestion(Good):
    def sizes(self) -> CacheSizes:
        return PageCache.sizes(self)


class KeepsTheCallersArray(Good):
    def commit(self, lease: Any, key: CacheKey, slots: Any, *, final: bool) -> Committed:
        done = super().commit(lease, key, slots, final=final)
        for i, name in enumerate(lease.pages):
            self._pages[name].slots = slots[i * self._size : (i + 1) * self._size]
        return done


class ForestTouches(Good):
    def forest(self, keys: Any) -> Any:
        self._tick += 1
        return super().forest(keys)


class FirstPageAlone(Good):
    """Odd, and right: it keeps the first page of a prompt and nothing else."""

    def _names(self, key: CacheKey, limit: int) -> Any:
        return super()._names(key, limit)[:1]


class Recursive(Good):
    def check(self) -> None:
        def depth(name: Any) -> int:
            page = self._pages[name]
            return 1 + (depth(page.parent) if page.parent is not None else 0)

        assert all(depth(name) for name in self._pages)


class ClockRecency(Good):
    def _lock(self, names: Any) -> None:
        super()._lock(names)
        for name in names:
            self._pages[name].used = time.monotonic_ns()


class ForgetsALock(Good):
    """A commit that finds its whole prefix stored by another request meanwhile protects nothing of it."""

    def commit(self, lease: Any, key: CacheKey, slots: Any, *, final: bool) -> Committed:
        done = super().commit(lease, key, slots, final=final)
        if len(done.free.slots) > 2 * self._size:
            for name in lease.pages[-1:]:
                self._pages[name].leases -= 1
        return done


@hookimpl
def jackfield_prefix_cache(context: Any) -> PrefixCache:
    made: PrefixCache = globals()[context.name.replace("-", " ").title().replace(" ", "")](
        context.page_size, context.events
    )
    return made
