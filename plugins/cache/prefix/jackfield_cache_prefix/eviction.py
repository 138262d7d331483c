"""The queue of evictable leaves in the order of a strategy. It knows the strategy's keys, not what they mean.

A heap whose entries go stale instead of being searched for: an entry counts only while it is its node's newest and the node
is a leaf without leases. So a release costs O(log n) and an eviction O(evicted log n). Stale entries are swept out when the
heap has doubled since the last sweep, so there are never more of them than of the entries that counted, and some spare ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from jackfield_cache_prefix.radix_tree import Node
from jackfield_cache_prefix.strategies import Order, Strategy

_SPARE = 64


class EvictionQueue:
    def __init__(self, strategy: Strategy) -> None:
        self._key = strategy.key
        self._heap: list[tuple[Order, int, Node]] = []
        self._pushed = 0
        self._compact_at = _SPARE

    def push(self, leaf: Node) -> None:
        """The node has become an evictable leaf, or its key may have changed while it is one."""
        if len(self._heap) >= self._compact_at:
            self._heap = [entry for entry in self._heap if _counts(entry)]
            heapq.heapify(self._heap)
            self._compact_at = 2 * len(self._heap) + _SPARE
        self._pushed += 1  # also makes entries of equal keys comparable
        leaf.ticket = self._pushed
        heapq.heappush(self._heap, (self._key(leaf), self._pushed, leaf))

    def pop(self) -> Node | None:
        """The evictable leaf that goes first; None if there is none."""
        while self._heap:
            entry = heapq.heappop(self._heap)
            if _counts(entry):
                leaf = entry[2]
                leaf.ticket = 0
                return leaf
        return None

    def clear(self) -> None:
        self._heap.clear()
        self._compact_at = _SPARE

    def __iter__(self) -> Iterator[Node]:
        """The nodes that count, in no order."""
        return (entry[2] for entry in self._heap if _counts(entry))


def is_evictable_leaf(node: Node) -> bool:
    return node.parent is not None and node.refs == 0 and not node.children


def _counts(entry: tuple[Order, int, Node]) -> bool:
    _, ticket, node = entry
    return node.ticket == ticket and is_evictable_leaf(node)
