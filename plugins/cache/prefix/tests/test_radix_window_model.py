"""The radix cache with window layers against a model of two sets: prefixes that are stored, and those of them whose last page
has KV of the window layers. Under random requests that chunk, slide, share and are evicted from either pool, every strategy.

`window` holds for each slot what the window layers' KV in it was computed from, moved and given back as the cache says, so
that a component in the wrong place is seen.
"""

from __future__ import annotations

from collections import Counter
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from jackfield.hookspecs import Amounts, CacheKey, window_floor
from jackfield.testing.conformance.cache_keys import Prefix, Request
from jackfield_cache_prefix.options import Eviction
from jackfield_cache_prefix.radix_cache import RadixCache

POOL = 4096
EVICTIONS: tuple[Eviction, ...] = get_args(Eviction)


class Model:
    """Each method acts on the cache and on the model, and compares the two."""

    def __init__(self, page_size: int, window: int, eviction: Eviction = "lru") -> None:
        self.page = page_size
        self.tokens = window
        self.cache = RadixCache(page_size, eviction, window=window)
        self.free = list(range(POOL))
        self.content: dict[int, Prefix] = {}
        self.window: dict[int, Prefix] = {}
        self.stored: dict[Prefix, list[int]] = {}  # each whole page in the tree: the prefix to its end -> its slots
        self.narrow: set[Prefix] = set()  # those of them that have a component
        self.requests: list[Request] = []
        self.seen: Counter[str] = Counter()

    def floor(self, length: int) -> int:
        return window_floor(length, self.tokens, self.page)

    def arrive(self, namespace: bytes, letters: list[int], length: int, limit: int) -> None:
        half = max(1, self.page // 2)
        tokens = ([letter for letter in letters for _ in range(half)] + [0] * length)[:length]
        key = CacheKey(namespace=namespace, tokens=np.array(tokens, dtype=np.int32))
        assert self.cache.peek([key]).tolist() == [self.usable(namespace, tokens, length)]
        assert self.cache.forest([key]).matched.tolist() == [self.usable(namespace, tokens, length)]
        lease = self.cache.acquire(key, limit)
        assert lease.length == self.usable(namespace, tokens, limit)
        self.seen["hit"] += lease.length > 0
        self.seen["bare hit"] += self.full(namespace, tokens, limit) > lease.length
        self.requests.append(Request(namespace, tokens, lease, self.floor(lease.length), lease.slots.tolist()))

    def compute(self, pick: int, count: int) -> None:
        if not self.requests:
            return
        request = self.requests[pick % len(self.requests)]
        if request.final or count > len(self.free):
            return
        while len(request.tokens) < len(request.row) + count:
            request.tokens.append(pick % 2)
        for _ in range(count):
            slot = self.free.pop()
            request.row.append(slot)
            self.content[slot] = self.window[slot] = request.prefix(len(request.row))

    def slide(self, pick: int, share: float) -> None:
        """Somewhere between where the window begins and where it could."""
        if not self.requests:
            return
        request = self.requests[pick % len(self.requests)]
        room = max(0, self.floor(len(request.row)) - request.floor) // self.page
        floor = request.floor + int(room * share + 0.5) * self.page
        for slot in request.row[max(request.floor, request.lease.length) : floor]:
            del self.window[slot]
        freed = self.cache.slide(request.lease, floor)
        assert not len(freed.slots)
        assert not len(freed.window)
        request.floor = floor
        self.seen["slid"] += room > 0

    def commit(self, pick: int, final: bool) -> None:
        if not self.requests:
            return
        request = self.requests[pick % len(self.requests)]
        if request.final:
            return
        length = len(request.row)
        start, whole = request.lease.length, length // self.page * self.page
        known = self.full(request.namespace, request.tokens, length)
        row = np.array(request.row, dtype=np.int32)
        self.cache.slide(request.lease, request.floor)
        done = self.cache.commit(request.lease, request.key(length), row, final=final)
        request.final = final
        assert done.length == whole == request.lease.length
        assert done.free.slots.tolist() == request.row[start:known]
        bare = [
            end
            for end in range(self.page, known + 1, self.page)
            if end > max(start, request.floor) and request.prefix(end) not in self.narrow
        ]
        moved = [at for end in bare for at in range(end - self.page, end)]
        pairs = dict(zip(done.moved.tolist(), done.moved_to.tolist(), strict=True))
        assert pairs == {request.row[at]: int(done.slots[at]) for at in moved}
        for slot, to in pairs.items():
            assert to not in self.window
            self.window[to] = self.window.pop(slot)
        request.row[:whole] = done.slots.tolist()
        self.give_back(done.free.slots)
        for end in range(self.page, whole + 1, self.page):
            page = request.row[end - self.page : end]
            assert self.stored.setdefault(request.prefix(end), page) == page
            if end > max(start, request.floor):
                self.narrow.add(request.prefix(end))
        self.seen["duplicate"] += len(done.free.slots) > 0
        self.seen["restored"] += len(pairs) > 0

    def leave(self, pick: int) -> None:
        if not self.requests:
            return
        request = self.requests.pop(pick % len(self.requests))
        self.give_back(np.array(request.row[request.lease.length :], dtype=np.int32))
        self.cache.release(request.lease)

    def evict(self, pages: int, narrow: int) -> None:
        before = self.cache.sizes()
        freed = self.cache.evict(Amounts(slots=pages * self.page, window=narrow * self.page))
        gone = self.pages(freed.slots)
        bared = self.pages(freed.window)
        assert len(gone) >= min(before.evictable // self.page, pages)
        assert len(gone & self.narrow) + len(bared) >= min(before.window_evictable // self.page, narrow)
        assert bared <= self.narrow - gone
        assert not gone & self.leased()
        assert not bared & self.locked()
        if not narrow:
            assert not bared
        if not narrow and set(self.stored) == self.narrow:
            assert len(gone) == min(before.evictable // self.page, pages)
        for prefix in gone:
            del self.stored[prefix]
        self.narrow -= gone | bared
        for slot in freed.window.tolist():
            del self.window[slot]
        self.give_back(freed.slots)
        for namespace, tokens in self.stored:
            assert len(tokens) == self.page or (namespace, tokens[: -self.page]) in self.stored
        self.seen["evicted"] += len(gone) > 0
        self.seen["bared"] += len(bared) > 0

    def reset(self) -> None:
        if self.requests:
            with pytest.raises(RuntimeError):
                self.cache.reset()
            return
        self.give_back(self.cache.reset().slots)
        self.stored.clear()
        self.narrow.clear()

    def check(self) -> None:
        self.cache.check()
        for request in self.requests:
            for i, slot in enumerate(request.row):
                assert self.content[slot] == request.prefix(i + 1)
                if i >= request.floor:
                    assert self.window.get(slot) == request.prefix(i + 1), "a request lost what its window reads"
        for prefix, slots in self.stored.items():
            have = [self.window[slot][1] if slot in self.window else None for slot in slots]
            ends = range(len(prefix[1]) - self.page + 1, len(prefix[1]) + 1)
            assert have == [prefix[1][:end] if prefix in self.narrow else None for end in ends]
        sizes, page = self.cache.sizes(), self.page
        assert sizes.protected == page * len(self.leased())
        assert sizes.evictable + sizes.protected == page * len(self.stored)
        assert sizes.window_protected == page * len(self.locked())
        assert sizes.window_evictable + sizes.window_protected == page * len(self.narrow)
        assert (
            len(self.free) + page * len(self.stored) + self.held() == POOL == len({*self.free}) + POOL - len(self.free)
        )

    # ---- what the model knows

    def full(self, namespace: bytes, tokens: list[int], limit: int) -> int:
        length = 0
        while length + self.page <= min(limit, len(tokens)):
            if (namespace, tuple(tokens[: length + self.page])) not in self.stored:
                break
            length += self.page
        return length

    def usable(self, namespace: bytes, tokens: list[int], limit: int) -> int:
        """The longest stored prefix all of whose window, tokens that the next one may see, has its components."""
        best = self.full(namespace, tokens, limit)
        while best and not self.valid((namespace, tuple(tokens[:best]))):
            best -= self.page
        return best

    def valid(self, prefix: Prefix) -> bool:
        namespace, tokens = prefix
        floor = self.floor(len(tokens))
        assert floor <= max(0, len(tokens) - self.tokens + 1) or self.tokens == 1
        return all(
            (namespace, tokens[:end]) in self.narrow for end in range(floor + self.page, len(tokens) + 1, self.page)
        )

    def leased(self) -> set[Prefix]:
        return {
            request.prefix(end)
            for request in self.requests
            for end in range(self.page, request.lease.length + 1, self.page)
        }

    def locked(self) -> set[Prefix]:
        return {
            request.prefix(end)
            for request in self.requests
            for end in range(request.floor + self.page, request.lease.length + 1, self.page)
        }

    def held(self) -> int:
        return sum(len(request.row) - request.lease.length for request in self.requests)

    def pages(self, slots: NDArray[np.int32]) -> set[Prefix]:
        ends = slots[self.page - 1 :: self.page].tolist()
        found = {self.content[end] for end in ends}
        assert [slot for end in ends for slot in self.stored[self.content[end]]] == slots.tolist()
        return found

    def give_back(self, slots: NDArray[np.int32]) -> None:
        for slot in slots.tolist():
            self.window.pop(slot, None)
        self.free.extend(slots.tolist())


NAMESPACES = (b"", b"salt")


@pytest.mark.parametrize(
    ("eviction", "page_size", "window"), [("lru", 1, 6), *((eviction, 4, 10) for eviction in EVICTIONS)]
)
def test_a_long_walk_keeps_every_window(eviction: Eviction, page_size: int, window: int) -> None:
    """Sums, rows and components are checked after each of the operations, and all that is meant to happen happens."""
    rng = np.random.default_rng(page_size)
    model = Model(page_size, window, eviction)
    for _ in range(1500):
        act, pick = rng.random(), int(rng.integers(99))
        if act < 0.3 and len(model.requests) < 12:
            letters = rng.integers(0, 2, rng.integers(0, 3)).tolist()
            length = int(rng.integers(1, 10 * page_size + 8))
            model.arrive(NAMESPACES[rng.integers(2)], letters, length, length if rng.random() < 0.7 else length // 2)
        elif act < 0.6:
            model.compute(pick, int(rng.integers(1, 4 * page_size + 2)))
            if rng.random() < 0.7:
                model.commit(pick, rng.random() < 0.3)
        elif act < 0.75:
            model.slide(pick, float(rng.choice([0.5, 1])))
        elif act < 0.9:
            model.leave(pick)
        elif act < 0.999:
            model.evict(int(rng.integers(0, 2)), int(rng.integers(0, 5)))
        else:
            while model.requests:
                model.leave(0)
            model.reset()
        model.check()
    wanted = ("hit", "bare hit", "slid", "duplicate", "restored", "evicted", "bared")
    assert min(model.seen[what] for what in wanted) >= 2, model.seen
