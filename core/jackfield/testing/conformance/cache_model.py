"""A cache beside a model that is nothing but a set of prefixes: whatever one does to the other is compared.

The content of a slot is the whole prefix that was computed into it, so that a wrong slot anywhere is seen; and likewise what
its KV of the window layers was computed from, where the cache has the feature "window". Which prefix is evicted is the
cache's own choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from jackfield.hookspecs import Amounts, CacheKey, Freed, PrefixCache, window_floor
from jackfield.testing.conformance.cache_keys import Prefix, Request, common_tokens, make_key, prefix_of

POOL = 2048


class CacheModel:
    """Each method acts on the cache and on the model, and compares the two. AssertionError where they differ."""

    def __init__(
        self,
        cache: PrefixCache,
        page_size: int,
        *,
        window: int | None = None,
        forest: bool = False,
        evicted: bool = False,
    ) -> None:
        self.cache, self.page, self.window = cache, page_size, window
        self.tells_forest, self.tells_evicted = forest, evicted
        self.tells_events = type(cache).take_events is not PrefixCache.take_events
        self.free = list(range(page_size, POOL + page_size))
        self.content: dict[int, Prefix] = {}
        self.narrow: dict[int, Prefix] = {}  # slots with KV of the window layers
        self.stored: dict[Prefix, list[int]] = {}  # each page of the cache: the prefix to its end -> its slots
        self.requests: list[Request] = []
        self.mirror: set[Prefix] = set()  # what a router believes to be stored

    def floor(self, length: int) -> int:
        return 0 if self.window is None else window_floor(length, self.window, self.page)

    def arrive(self, namespace: bytes, tokens: list[int], limit: int) -> None:
        key = make_key(namespace, tokens)
        expected = self.cached(namespace, tokens, len(tokens))
        assert self.cache.peek([key]).tolist() == [expected], "peek gives another length than is cached"
        if self.tells_forest:
            self.compare_forest([key, *(request.key(len(request.tokens)) for request in self.requests)])
        lease = self.cache.acquire(key, limit)
        wanted = self.cached(namespace, tokens, limit)
        assert lease.length == wanted == len(lease.slots), "acquire holds another length than is cached"
        request = Request(namespace, tokens, lease, self.floor(lease.length), lease.slots.tolist())
        self.requests.append(request)

    def compute(self, pick: int, count: int) -> None:
        """More of one request, in fresh slots."""
        request = self.open(pick)
        if request is None or request.final or count > len(self.free):
            return
        while len(request.tokens) < len(request.row) + count:
            request.tokens.append(pick % 2)
        for _ in range(count):
            slot = self.free.pop()
            request.row.append(slot)
            self.content[slot] = self.narrow[slot] = request.prefix(len(request.row))

    def slide(self, pick: int, share: float) -> None:
        """Somewhere between where its window begins and where it could."""
        request = self.open(pick)
        if request is None or self.window is None:
            return
        room = max(0, self.floor(len(request.row)) - request.floor) // self.page
        floor = request.floor + int(room * share + 0.5) * self.page
        for slot in request.row[max(request.floor, request.lease.length) : floor]:
            self.narrow.pop(slot)
        request.floor = floor
        self.take_back(self.cache.slide(request.lease, floor))

    def commit(self, pick: int, final: bool) -> None:
        request = self.open(pick)
        if request is None or request.final:
            return
        length, start = len(request.row), request.lease.length
        if self.window is not None:
            self.take_back(self.cache.slide(request.lease, request.floor))
        row = np.array(request.row, dtype=np.int32)
        done = self.cache.commit(request.lease, request.key(length), row, final=final)
        request.final = final
        assert start <= done.length <= length, f"commit of {length} tokens, {start} of them leased, owns {done.length}"
        assert done.length % self.page == 0, "commit owns part of a page"
        assert done.length == request.lease.length == len(done.slots), "the lease did not grow to what commit owns"
        assert done.slots.tolist() == request.lease.slots.tolist(), "the lease has other slots than commit answered"
        mine, given = request.row[start : done.length], done.slots.tolist()
        duplicates = [slot for at, slot in enumerate(mine, start) if given[at] != slot]
        assert sorted(done.free.slots.tolist()) == sorted(duplicates), "commit frees other slots than the duplicates"
        self._move(done.moved, done.moved_to, duplicates)
        for end in range(self.page, done.length + 1, self.page):
            pages = given[end - self.page : end]
            known = self.stored.setdefault(request.prefix(end), pages)
            assert known == pages, "a prefix that is stored already was taken in a second time"
        request.row[: done.length] = given
        self.give_back(done.free.slots.tolist())

    def leave(self, pick: int) -> None:
        request = self.open(pick)
        if request is None:
            return
        self.requests.remove(request)
        self.give_back(request.row[request.lease.length :])
        self.cache.release(request.lease)

    def evict(self, pages: int, narrow: int = 0) -> None:
        before = self.cache.sizes()
        freed = self.cache.evict(Amounts(slots=pages * self.page, window=narrow * self.page))
        if self.tells_evicted:
            self.compare_evicted(freed.slots)
        bared = self.take_back(freed)
        enough = min(before.evictable, pages * self.page)
        assert len(freed.slots) >= enough, (
            f"evict gave {len(freed.slots)} slots back, {enough} were asked and evictable"
        )
        assert bared >= min(before.window_evictable, narrow * self.page), (
            "evict gave too little of the window pool back"
        )

    def poll(self) -> None:
        self.take_back(self.cache.poll())

    def reset(self) -> None:
        if self.requests:
            with pytest.raises(RuntimeError):
                self.cache.reset()
            return
        self.take_back(self.cache.reset())
        assert not self.stored, "reset kept slots"

    def check(self) -> None:
        """Every row holds its own tokens, and the sums are exact."""
        self.cache.check()
        self.follow_events()
        for request in self.requests:
            for i, slot in enumerate(request.row):
                assert self.content[slot] == request.prefix(i + 1), f"slot {slot} holds something else than token {i}"
                if self.window is not None and i >= request.floor:
                    assert self.narrow.get(slot) == request.prefix(i + 1), "a request lost what its window reads"
        sizes, stored = self.cache.sizes(), self.page * len(self.stored)
        assert sizes.protected == len(self.leased()), f"{sizes.protected} protected, {len(self.leased())} leased"
        assert sizes.evictable + sizes.protected + sizes.pending == stored, f"{sizes} of {stored} slots in the cache"
        if self.window is not None:
            owned = [slot for slots in self.stored.values() for slot in slots]
            assert sizes.window_protected == len(self.locked()), f"{sizes}: {len(self.locked())} are read by windows"
            assert sizes.window_evictable + sizes.window_protected == sum(slot in self.narrow for slot in owned)
        held = sum(len(request.row) - request.lease.length for request in self.requests)
        assert len(self.free) + stored + held == POOL, "slots were lost"
        assert len(set(self.free)) == len(self.free), "a slot was given back twice"

    def follow_events(self) -> None:
        """A router's copy, from the events alone."""
        events = self.cache.take_events()
        for event in events:
            if event.action == "cleared":
                self.mirror.clear()
                continue
            end = len(event.tokens)
            ends = range(end - event.length + self.page, end + 1, self.page)
            block = {prefix_of(event.namespace, event.tokens, at) for at in ends}
            if event.action == "stored":
                assert not block & self.mirror, "an event stores what is stored"
                self.mirror |= block
            else:
                assert event.action == "removed", f"an event with the action {event.action!r}"
                assert block <= self.mirror, "an event removes what is not stored"
                self.mirror -= block
        assert not self.tells_events or self.mirror == set(self.stored), (
            "what events say is stored is not what the cache holds"
        )

    def compare_forest(self, keys: list[CacheKey]) -> None:
        forest = self.cache.forest(keys)
        assert forest is not None, "the manifest has the feature forest, but forest answered None"
        assert forest.matched.tolist() == self.cache.peek(keys).tolist(), "forest matches other lengths than peek"
        assert (forest.parent < np.arange(len(forest.parent))).all(), "a node of the forest stands before its parent"
        assert ((forest.node < 0) == (forest.matched == 0)).all(), (
            "node is -1 for other keys than those without a match"
        )
        paths = [self._path(forest.parent, int(node)) for node in forest.node]
        weight = np.zeros(len(forest.parent), dtype=np.int32)
        for path in paths:
            weight[path] += 1
        assert weight.tolist() == forest.weight.tolist(), "a node's weight is not the number of keys through it"
        for i, one in enumerate(keys):
            for j, other in enumerate(keys[:i]):
                n = min(int(forest.matched[i]), int(forest.matched[j]))
                same = n and common_tokens(one, other) >= min(n, self.page)
                assert bool(same) == bool(set(paths[i]) & set(paths[j])), "keys share a node though no page, or no node"

    def compare_evicted(self, freed: NDArray[np.int32]) -> None:
        """All that went is told, with the KV of each whole sequence as it still stands."""
        gone: list[int] = []
        for run in self.cache.take_evicted():
            tokens, page = run.key.tokens.tolist(), self.page
            assert len(run.slots) == len(tokens) > run.start >= 0, "an Evicted without slots for all its tokens"
            assert run.start % page == len(tokens) % page == 0, "an Evicted that is not of whole pages"
            for i, slot in enumerate(run.slots.tolist()):
                assert self.content[slot] == prefix_of(run.key.namespace, tokens, i + 1)
            gone += run.slots[run.start :].tolist()
        assert sorted(gone) == sorted(freed.tolist()), "take_evicted does not tell what evict gave up"
        assert not self.cache.take_evicted(), "take_evicted tells it twice"

    # ---- what the model knows

    def open(self, pick: int) -> Request | None:
        return self.requests[pick % len(self.requests)] if self.requests else None

    def cached(self, namespace: bytes, tokens: Sequence[int], limit: int) -> int:
        """The longest stored prefix of at most `limit` tokens; with window layers, one whose window is there."""
        length = 0
        while length + self.page <= min(limit, len(tokens)):
            if prefix_of(namespace, tokens, length + self.page) not in self.stored:
                break
            length += self.page
        while length and self.window is not None and not self._window_there(namespace, tokens, length):
            length -= self.page
        return length

    def leased(self) -> set[int]:
        return {slot for request in self.requests for slot in request.row[: request.lease.length]}

    def locked(self) -> set[int]:
        return {slot for request in self.requests for slot in request.row[request.floor : request.lease.length]}

    def take_back(self, freed: Freed) -> int:
        """What the cache gave up. Returns how much of the window pool that is."""
        slots, bared = freed.slots.tolist(), freed.window.tolist()
        owner = {slot: prefix for prefix, owned in self.stored.items() for slot in owned}
        assert set(slots) <= set(owner), "the cache gave slots back that it does not own"
        assert len(slots) == len(set(slots)), "the cache gave a slot back twice"
        assert not set(slots) & self.leased(), "the cache gave slots back that a lease holds"
        gone = {owner[slot] for slot in slots}
        assert sum(len(self.stored[prefix]) for prefix in gone) == len(slots), "the cache gave part of a page back"
        narrow = sum(slot in self.narrow for slot in slots) + len(bared)
        assert set(bared) <= set(owner) - set(slots), "window KV was given up of slots that the cache does not keep"
        assert not set(bared) & self.locked(), "window KV was given up that a lease still reads"
        for prefix in gone:
            del self.stored[prefix]
        for slot in bared:
            assert self.narrow.pop(slot, None) is not None, "window KV was given up that was not there"
        self.give_back(slots)
        return narrow

    def give_back(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self.narrow.pop(slot, None)
        self.free.extend(slots)

    def _move(self, moved: NDArray[np.int32], moved_to: NDArray[np.int32], duplicates: list[int]) -> None:
        for slot, to in zip(moved.tolist(), moved_to.tolist(), strict=True):
            assert slot in duplicates, "window KV moves from a slot that is not freed"
            assert to not in self.narrow, "window KV moves to a slot that has some"
            assert self.content[slot] == self.content[to], "window KV moves to a slot of other tokens"
            self.narrow[to] = self.narrow.pop(slot)

    def _window_there(self, namespace: bytes, tokens: Sequence[int], length: int) -> bool:
        ends = range(self.floor(length) + self.page, length + 1, self.page)
        pages = [self.stored[prefix_of(namespace, tokens, end)] for end in ends]
        return all(slot in self.narrow for page in pages for slot in page)

    def _path(self, parent: NDArray[np.intp], node: int) -> list[int]:
        path: list[int] = []
        while node >= 0:
            path.append(node)
            node = int(parent[node])
        return path
