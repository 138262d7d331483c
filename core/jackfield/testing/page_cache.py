"""Prefix caches to test schedulers, policies and loops with: slow, small, and strict. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import (
    Amounts,
    CacheKey,
    CacheSizes,
    Committed,
    Freed,
    Lease,
    PrefixCache,
    PrefixForest,
)


@dataclass
class _Page:
    slots: NDArray[np.int32]
    parent: tuple[bytes, bytes] | None
    leases: int = 0
    children: int = 0
    used: int = 0


class PageLease(Lease):
    __slots__ = ("pages", "released")

    def __init__(self, slots: NDArray[np.int32], pages: list[tuple[bytes, bytes]]) -> None:
        super().__init__(len(slots), slots)
        self.pages = pages
        self.released = False


class PageCache(PrefixCache):
    """The slow twin of a radix cache: a dict from (namespace, whole prefix) to one page. Prefix sharing, LRU eviction."""

    def __init__(self, page_size: int) -> None:
        self._size = page_size
        self._pages: dict[tuple[bytes, bytes], _Page] = {}
        self._leases = 0
        self._tick = 0

    def peek(self, keys: Sequence[CacheKey]) -> NDArray[np.int32]:
        return np.array([len(self._match(key, len(key.tokens))) * self._size for key in keys], dtype=np.int32)

    def forest(self, keys: Sequence[CacheKey]) -> PrefixForest:
        """One node a page."""
        paths = [self._match(key, len(key.tokens)) for key in keys]
        return PrefixForest.from_paths(paths, np.array([len(path) * self._size for path in paths], dtype=np.int32))

    def acquire(self, key: CacheKey, limit: int) -> PageLease:
        pages = self._match(key, limit)
        self._lock(pages)
        self._leases += 1
        return PageLease(self._slots(pages), pages)

    def commit(self, lease: Lease, key: CacheKey, slots: NDArray[np.int32], *, final: bool) -> Committed:
        assert isinstance(lease, PageLease)
        assert not lease.released
        assert len(slots) == len(key.tokens) >= lease.length
        assert np.array_equal(slots[: lease.length], lease.slots)
        free = []
        names = self._names(key, len(key.tokens))
        for i, name in enumerate(names[len(lease.pages) :], start=len(lease.pages)):
            mine = slots[i * self._size : (i + 1) * self._size].copy()
            if name in self._pages:
                free.append(mine)
            else:
                parent = names[i - 1] if i else None
                self._pages[name] = _Page(mine, parent)
                if parent is not None:
                    self._pages[parent].children += 1
        self._lock(names[len(lease.pages) :])
        lease.pages = names
        lease.slots = self._slots(names)
        lease.length = len(lease.slots)
        given_back = np.concatenate(free) if free else np.empty(0, dtype=np.int32)
        return Committed(length=lease.length, slots=lease.slots, free=Freed(slots=given_back))

    def release(self, lease: Lease) -> None:
        assert isinstance(lease, PageLease)
        if lease.released:
            raise RuntimeError("a lease is released twice")
        lease.released = True
        self._leases -= 1
        for name in lease.pages:
            self._pages[name].leases -= 1

    def evict(self, need: Amounts) -> Freed:
        gone: list[NDArray[np.int32]] = []
        while len(gone) * self._size < need.slots:
            leaves = [name for name, page in self._pages.items() if not page.leases and not page.children]
            if not leaves:
                break
            page = self._pages.pop(min(leaves, key=lambda name: self._pages[name].used))
            if page.parent is not None:
                self._pages[page.parent].children -= 1
            gone.append(page.slots)
        return Freed(slots=np.concatenate(gone) if gone else np.empty(0, dtype=np.int32))

    def sizes(self) -> CacheSizes:
        leased = sum(page.leases > 0 for page in self._pages.values())
        return CacheSizes(evictable=(len(self._pages) - leased) * self._size, protected=leased * self._size)

    def reset(self) -> Freed:
        if self._leases:
            raise RuntimeError(f"{self._leases} leases exist")
        slots = [page.slots for page in self._pages.values()]
        self._pages.clear()
        return Freed(slots=np.concatenate(slots) if slots else np.empty(0, dtype=np.int32))

    def check(self) -> None:
        slots = [slot for page in self._pages.values() for slot in page.slots.tolist()]
        assert len(slots) == len(set(slots)), "a slot is cached twice"
        assert all(page.leases >= 0 for page in self._pages.values()), "a page with fewer than no leases"

    def _names(self, key: CacheKey, limit: int) -> list[tuple[bytes, bytes]]:
        pages = min(limit, len(key.tokens)) // self._size
        names = []
        for end in range(self._size, (pages + 1) * self._size, self._size):
            media = b"".join(b"%d:%s," % mark for mark in key.marks if mark[0] < end)
            names.append((key.namespace + media, key.tokens[:end].tobytes()))
        return names

    def _match(self, key: CacheKey, limit: int) -> list[tuple[bytes, bytes]]:
        names = self._names(key, limit)
        for i, name in enumerate(names):
            if name not in self._pages:
                return names[:i]
        return names

    def _slots(self, names: list[tuple[bytes, bytes]]) -> NDArray[np.int32]:
        if not names:
            return np.empty(0, dtype=np.int32)
        return np.concatenate([self._pages[name].slots for name in names])

    def _lock(self, names: list[tuple[bytes, bytes]]) -> None:
        self._tick += 1
        for name in names:
            self._pages[name].leases += 1
            self._pages[name].used = self._tick


class NoSharingCache(PageCache):
    """Takes nothing, shares nothing: every request computes its whole prompt."""

    def commit(self, lease: Lease, key: CacheKey, slots: NDArray[np.int32], *, final: bool) -> Committed:
        return Committed(length=0, slots=np.empty(0, dtype=np.int32), free=Freed())
