"""Which KV slots are free, page by page. Knows neither requests nor the cache; it hands out slot numbers and takes them
back, and refuses what it did not hand out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class OutOfSlots(Exception):
    """More pages were asked for than are free."""


class TokenToKVPoolAllocator:
    """Free pages as a stack whose top holds the lowest numbers after start and after `compact`.

    Page 0 (slots 0 .. page_size-1) is the dummy page and never handed out: valid slots are
    page_size .. page_size + total_slots - 1. Groups of pages are given back in falling order, so that a later pop finds
    runs of consecutive pages, which attention kernels and copies like best.
    """

    def __init__(self, total_slots: int, page_size: int) -> None:
        if page_size < 1:
            raise ValueError(f"page_size is {page_size}, at least 1 is needed")
        if total_slots < page_size or total_slots % page_size:
            raise ValueError(
                f"total_slots is {total_slots}, which is no positive multiple of the page size {page_size}"
            )
        self.total_slots = total_slots
        self.page_size = page_size
        pages = total_slots // page_size
        self._stack = np.arange(pages, 0, -1, dtype=np.int32)
        self._top = pages
        self._used = np.zeros(pages + 1, dtype=np.bool_)
        self._within = np.arange(page_size, dtype=np.int32)

    def available(self) -> int:
        """Free slots."""
        return self._top * self.page_size

    def alloc(self, pages: int) -> NDArray[np.int32]:
        """Take `pages` pages. Returns their slots, int32 [pages * page_size], page by page.

        Raises OutOfSlots, and takes nothing, if fewer are free.
        """
        if pages < 0:
            raise ValueError(f"cannot allocate {pages} pages")
        if pages > self._top:
            raise OutOfSlots(f"{pages} pages wanted, {self._top} of {len(self._stack)} are free")
        taken = self._stack[self._top - pages : self._top][::-1]
        self._top -= pages
        self._used[taken] = True
        if self.page_size == 1:
            return taken.copy()
        return (taken[:, None] * np.int32(self.page_size) + self._within).reshape(-1)

    def free(self, slots: NDArray[np.int32]) -> None:
        """Give whole pages back: int32 [n * page_size], each page's slots together and in order.

        Raises ValueError, and changes nothing, for a slot outside the pool, a broken page, or a page that is free.
        """
        if len(slots) == 0:
            return
        pages = self._pages(slots)
        if pages[0] < 1 or pages[-1] > len(self._stack):
            raise ValueError(f"slots of page {pages[0] if pages[0] < 1 else pages[-1]} do not belong to this pool")
        if bool((pages[1:] == pages[:-1]).any()):
            raise ValueError("a page is given back twice in one call")
        if not bool(self._used[pages].all()):
            raise ValueError(f"page {pages[~self._used[pages]][0]} is given back, but it is free already")
        self._used[pages] = False
        self._stack[self._top : self._top + len(pages)] = pages[::-1]
        self._top += len(pages)

    def compact(self) -> None:
        """Sort the free pages so that the next pops are the lowest and consecutive. O(n log n): when nothing runs."""
        self._stack[: self._top] = np.sort(self._stack[: self._top])[::-1]

    def in_use(self, slots: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether each slot is handed out; False outside the pool. For checks."""
        pages = slots // self.page_size
        inside = (pages >= 1) & (pages < len(self._used))
        return inside & self._used[np.where(inside, pages, 0)]

    def _pages(self, slots: NDArray[np.int32]) -> NDArray[np.int32]:
        """The sorted pages that `slots` fill."""
        size = self.page_size
        if size == 1:
            return np.sort(slots)
        if len(slots) % size:
            raise ValueError(f"{len(slots)} slots are no whole pages of {size}")
        table = slots.reshape(-1, size)
        if bool((table[:, 0] % size).any()) or not bool((table == table[:, :1] + self._within).all()):
            raise ValueError(f"the slots do not form whole pages of {size}")
        return np.sort(table[:, 0] // size)
