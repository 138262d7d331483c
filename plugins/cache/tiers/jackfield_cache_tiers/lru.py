"""Which blocks go when there is no room: the least recently used. Knows names and sizes, not where blocks lie."""

from __future__ import annotations

import threading
from collections import OrderedDict

from jackfield.hookspecs import TierUse


class LruIndex:
    """key -> bytes, the oldest first. Thread-safe: one thread asks, another changes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._sizes: OrderedDict[bytes, int] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __contains__(self, key: bytes) -> bool:
        with self._lock:
            return key in self._sizes

    def touch(self, key: bytes) -> None:
        with self._lock:
            if key in self._sizes:
                self._sizes.move_to_end(key)

    def add(self, key: bytes, size: int) -> list[bytes]:
        """Keep a block, as the newest. Returns those that must go; itself, if it is bigger than all room there is."""
        gone: list[bytes] = []
        with self._lock:
            self._bytes += size - self._sizes.pop(key, 0)
            self._sizes[key] = size
            while self._bytes > self._capacity:
                oldest, freed = self._sizes.popitem(last=False)
                self._bytes -= freed
                gone.append(oldest)
        return gone

    def drop(self, key: bytes) -> None:
        with self._lock:
            self._bytes -= self._sizes.pop(key, 0)

    def clear(self) -> list[bytes]:
        with self._lock:
            keys = list(self._sizes)
            self._sizes.clear()
            self._bytes = 0
        return keys

    def use(self) -> TierUse:
        with self._lock:
            return TierUse(blocks=len(self._sizes), bytes=self._bytes, capacity=self._capacity)
