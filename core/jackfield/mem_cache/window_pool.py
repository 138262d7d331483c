"""The smaller pool of layers that look back over a window only: which of the pages that requests and the cache have also
have KV there, and where. Knows page numbers, neither requests nor the cache."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import WindowWrites
from jackfield.mem_cache.allocator import TokenToKVPoolAllocator


class WindowPool:
    """page_of   int32 [pages + 1]: page of the window pool for each page; 0, the dummy page: none

    Slots are given as whole pages, each page's together and in order, as the allocator hands them out.
    """

    def __init__(self, *, total_slots: int, window_slots: int, page_size: int) -> None:
        self.page_size = page_size
        self.total = window_slots
        self.page_of = np.zeros(total_slots // page_size + 1, dtype=np.int32)
        self._pages = TokenToKVPoolAllocator(window_slots // page_size, 1)
        self._changed: list[NDArray[np.int32]] = []

    def available(self) -> int:
        """Free slots."""
        return self._pages.available() * self.page_size

    def attach(self, slots: NDArray[np.int32]) -> None:
        """Give these slots, which have none, KV in the window pool. Raises OutOfSlots, and changes nothing, if it is full."""
        pages = self._of(slots)
        taken = self._pages.alloc(len(pages))
        self.page_of[pages] = taken
        self._changed.append(pages)

    def detach(self, slots: NDArray[np.int32]) -> None:
        """Take back what these slots have there; some may have nothing."""
        self.detach_pages(self._of(slots))

    def detach_pages(self, pages: NDArray[np.int32]) -> None:
        """`detach`, told by pages."""
        held = self.page_of[pages]
        pages, held = pages[held > 0], held[held > 0]
        if len(pages):
            self._pages.free(held)
            self.page_of[pages] = 0
            self._changed.append(pages)

    def move(self, slots: NDArray[np.int32], to: NDArray[np.int32]) -> None:
        """What `slots` have there becomes that of `to`, slots that have nothing. Raises ValueError, and changes nothing."""
        source, target = self._of(slots), self._of(to)
        if len(source) != len(target) or not self.page_of[source].all() or self.page_of[target].any():
            raise ValueError("KV of window layers is moved from slots that have none, or to some that have it")
        self.page_of[target] = self.page_of[source]
        self.page_of[source] = 0
        self._changed += [source, target]

    def has(self, slots: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether each of these slots, any ones, has KV there."""
        found: NDArray[np.bool_] = self.page_of[slots // self.page_size] > 0
        return found

    def take_writes(self) -> WindowWrites:
        """What changed since the last call, as it is now."""
        if not self._changed:
            return WindowWrites()
        pages = self._changed[0] if len(self._changed) == 1 else np.unique(np.concatenate(self._changed))
        self._changed = []
        return WindowWrites(pages=pages, window_pages=self.page_of[pages])

    def problem(self) -> str | None:
        """What is wrong with the map, or None. Slow."""
        held = np.sort(self.page_of[self.page_of > 0])
        if (held[1:] == held[:-1]).any():
            return f"page {held[1:][held[1:] == held[:-1]][0]} of the window pool has two owners"
        if not self._pages.in_use(held).all() or len(held) + self._pages.available() != self._pages.total_slots:
            return f"{len(held)} pages of the window pool are mapped, {self._pages.available()} are free"
        return None

    def _of(self, slots: NDArray[np.int32]) -> NDArray[np.int32]:
        return slots[:: self.page_size] // np.int32(self.page_size)
