"""The queue of evictable leaves, least recently used first. It knows recency numbers, not clocks.

A heap whose entries go stale instead of being searched for: an entry counts only while its node is still a leaf without
leases and with the recency that it was pushed with. So a release costs O(log n) and an eviction O(evicted log n).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from jackfield_cache_prefix.radix_tree import Node

_SPARE = 64


class LruQueue:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Node]] = []
        self._pushed = 0
        self._compact_at = _SPARE

    def push(self, leaf: Node) -> None:
        """The node has become an evictable leaf, or its recency has changed while it is one."""
        if len(self._heap) >= self._compact_at:
            self._heap = [entry for entry in self._heap if _counts(entry)]
            heapq.heapify(self._heap)
            self._compact_at = 2 * len(self._heap) + _SPARE
        self._pushed += 1  # makes entries of equal recency comparable
        heapq.heappush(self._heap, (leaf.recency, self._pushed, leaf))

    def pop(self) -> Node | None:
        """The evictable leaf that was used longest ago; None if there is none."""
        while self._heap:
            entry = heapq.heappop(self._heap)
            if _counts(entry):
                return entry[2]
        return None

    def clear(self) -> None:
        self._heap.clear()
        self._compact_at = _SPARE

    def __iter__(self) -> Iterator[Node]:
        """The nodes that count, in no order."""
        return (entry[2] for entry in self._heap if _counts(entry))


def is_evictable_leaf(node: Node) -> bool:
    return node.parent is not None and node.refs == 0 and not node.children


def _counts(entry: tuple[int, int, Node]) -> bool:
    recency, _, node = entry
    return node.recency == recency and is_evictable_leaf(node)
