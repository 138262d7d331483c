"""The window layers' part of the radix tree: each node has a component, the KV of these layers for all its tokens, or is a
tombstone. It knows nodes and positions, not leases.

A prefix can be used if its last tokens, as many as the window layers look back, have their components in one run, or all of
them have. Whoever uses it locks these nodes; before them the component may go, and the node with its full KV stays.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

import numpy as np

from jackfield.hookspecs import NO_SLOTS, window_floor
from jackfield_cache_prefix.eviction import is_evictable_leaf
from jackfield_cache_prefix.radix_tree import Ints, Match, Node, RadixTree, round_up
from jackfield_cache_prefix.strategies import Order, Strategy

_SPARE = 64

_Entry = tuple[Order, bool, int, Node]


class WindowQueue:
    """Nodes whose component can be evicted, in the order of a strategy; among equals one whose end is not a leaf's goes
    first, so that of a path the middle goes before the end. Entries go stale as in `EvictionQueue`."""

    def __init__(self, strategy: Strategy) -> None:
        self._key = strategy.key
        self._heap: list[_Entry] = []
        self._pushed = 0
        self._compact_at = _SPARE

    def push(self, node: Node) -> None:
        """The node's component can be evicted now, or its key may have changed since it can."""
        if len(self._heap) >= self._compact_at:
            self._heap = [entry for entry in self._heap if _counts(entry)]
            heapq.heapify(self._heap)
            self._compact_at = 2 * len(self._heap) + _SPARE
        self._pushed += 1
        node.window_ticket = self._pushed
        heapq.heappush(self._heap, (self._key(node), not node.children, self._pushed, node))

    def pop(self) -> Node | None:
        while self._heap:
            entry = heapq.heappop(self._heap)
            if _counts(entry):
                entry[3].window_ticket = 0
                return entry[3]
        return None

    def clear(self) -> None:
        self._heap.clear()
        self._compact_at = _SPARE

    def __iter__(self) -> Iterator[Node]:
        """The nodes that count, in no order."""
        return (entry[3] for entry in self._heap if _counts(entry))


def _counts(entry: _Entry) -> bool:
    node = entry[3]
    return node.window_ticket == entry[2] and node.window and node.window_refs == 0 and node.parent is not None


class WindowComponents:
    """reach        tokens at a node's end, whole pages, whose component makes that end usable
    evictable, protected   tokens with a component, not locked and locked
    """

    def __init__(self, tree: RadixTree, tokens: int, strategy: Strategy) -> None:
        self.queue = WindowQueue(strategy)
        self.evictable = 0
        self.protected = 0
        self._tree = tree
        self._tokens = max(tokens, 2)
        self.reach = round_up(self._tokens - 1, tree.page_size)

    def floor(self, length: int) -> int:
        """The first token that who uses `length` tokens still reads, whole pages."""
        return window_floor(length, self._tokens, self._tree.page_size)

    def hold(self, node: Node, end: int) -> int:
        """Lock what who uses the path to `node`, which ends at `end`, reads. Returns where that begins."""
        floor = self.floor(end)
        self.cut_at(node, end, floor)
        self.lock(node, end, floor)
        return floor

    def let_go(self, node: Node, end: int, begin: int, floor: int) -> None:
        """Who has locked the path to `node` from `begin` on reads no token below `floor` any more."""
        if begin < end:
            floor = min(floor, end)
            self.cut_at(node, end, floor)
            self.unlock(node, end, begin, floor)

    def clear(self) -> None:
        """The tree is empty now."""
        self.queue.clear()
        self.evictable = 0

    def usable(self, match: Match) -> int:
        """The longest usable beginning of a match from a root, in tokens."""
        best = at = run = 0
        parts = [(node, node.length) for node in match.whole]
        if match.partial is not None:
            parts.append((match.partial, match.inside))
        for node, length in parts:
            at += length
            if not node.window:
                run = at
            elif run == 0 or at >= run + self._tokens - 1:
                best = at
        return best

    def cut_at(self, node: Node, end: int, floor: int) -> None:
        """Split the path that ends with `node` at position `end`, so that a node begins at `floor`."""
        at: Node | None = node
        while at is not None and end > floor:
            start = end - at.length
            if start < floor:
                self.split(at, floor - start)
                return
            end, at = start, at.parent

    def split(self, node: Node, length: int) -> Node:
        """`RadixTree.split`; both halves have what the whole had."""
        upper = self._tree.split(node, length)
        upper.window, upper.window_refs = node.window, node.window_refs
        if upper.window and not upper.window_refs:
            self.queue.push(upper)
        return upper

    def add(self, node: Node) -> None:
        """The node has a component from now on, and whoever brought it locks it next."""
        node.window = True
        self.evictable += node.length

    def restore(self, node: Node, end: int, begin: int, slots: Ints) -> tuple[Ints, Ints]:
        """Tombstones from `begin` to `end`, where `node` ends, get the components that `slots` have, whose tokens are theirs;
        who brought them locks them next. Returns the slots that give theirs, and those that get it."""
        if begin >= end:
            return NO_SLOTS, NO_SLOTS
        self.cut_at(node, end, begin)
        bare = [(at, start) for at, start in _upwards(node, end, begin) if not at.window]
        if not bare:
            return NO_SLOTS, NO_SLOTS
        for at, _ in bare:
            self.add(at)
        moved = np.concatenate([slots[start : start + at.length] for at, start in bare])
        return moved, np.concatenate([at.slots for at, _ in bare])

    def evict(self, until: int, freed: list[Ints], cut: Callable[[Node], Ints]) -> list[Ints]:
        """Until no more than `until` tokens have an unlocked component: of a long node all but the end goes, then the rest
        where something stands on it; an unleased leaf goes whole, by `cut`, into `freed`. Returns the slots that lost it and
        stayed, if nothing took them since."""
        bare: list[Ints] = []
        while self.evictable > until and (node := self.queue.pop()) is not None:
            if node.length > self.reach:
                upper = self.split(node, node.length - self.reach)
                self.queue.push(node)
            elif is_evictable_leaf(node):
                freed.append(cut(node))
                continue
            else:
                upper = node
            upper.window = False
            self.evictable -= upper.length
            bare.append(upper.slots)
        return bare

    def lock(self, node: Node, end: int, begin: int) -> None:
        """One more user of the nodes from position `begin` to `end`, where `node` ends."""
        for at, _ in _upwards(node, end, begin):
            if at.window_refs == 0:
                self.evictable -= at.length
                self.protected += at.length
            at.window_refs += 1

    def unlock(self, node: Node, end: int, begin: int, until: int) -> None:
        """One user less of the nodes from `begin` to `until`, on the path whose last node ends at `end`."""
        for at, start in _upwards(node, end, begin):
            if start >= until:
                continue
            at.window_refs -= 1
            if at.window_refs == 0:
                self.evictable += at.length
                self.protected -= at.length
                self.queue.push(at)

    def useless(self, leaf: Node, keep: int) -> bool:
        """Whether no prefix that ends in the first `keep` tokens of the leaf could be used."""
        if not leaf.window:
            return True
        parent = leaf.parent
        return keep < self.reach and parent is not None and parent.parent is not None and not parent.window


def _upwards(node: Node, end: int, begin: int) -> Iterator[tuple[Node, int]]:
    """The nodes that begin at `begin` or later, and where, upwards from `node`, which ends at `end`."""
    at: Node | None = node
    while at is not None and at.parent is not None and end > begin:
        end -= at.length
        if end < begin:
            raise AssertionError("prefix cache: no node begins where a lease's window does")
        yield at, end
        at = at.parent
