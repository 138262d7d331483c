"""The prefix cache over a radix tree: leases, commits, eviction and sizes. It knows slot numbers, not what they hold.

What eviction goes by is written into the nodes of a path when a lease on it ends: what is leased cannot be evicted, so
that is the time that counts. The order is that of the strategy (`strategies.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import (
    NO_SLOTS,
    Amounts,
    CacheEvent,
    CacheKey,
    CacheSizes,
    Committed,
    Evicted,
    Freed,
    Lease,
    PrefixCache,
    PrefixForest,
)
from jackfield_cache_prefix.checks import check_cache
from jackfield_cache_prefix.eviction import EvictionQueue, is_evictable_leaf
from jackfield_cache_prefix.leases import RadixLease, refuse_bad_commit
from jackfield_cache_prefix.marks import MarkTable
from jackfield_cache_prefix.options import Eviction
from jackfield_cache_prefix.radix_tree import Ints, Match, Node, RadixTree, freeze, joined, round_up
from jackfield_cache_prefix.strategies import make_strategy
from jackfield_cache_prefix.telling import Telling
from jackfield_cache_prefix.window import WindowComponents


class RadixCache(PrefixCache):
    def __init__(
        self,
        page_size: int,
        eviction: Eviction = "lru",
        *,
        events: bool = False,
        evicted: bool = False,
        window: int | None = None,
    ) -> None:
        self.tree = RadixTree(page_size)
        self.marks = MarkTable()
        self.queue = EvictionQueue(make_strategy(eviction))
        self.window = None if window is None else WindowComponents(self.tree, window, make_strategy(eviction))
        self.leases: set[RadixLease] = set()
        self._evictable = 0
        self._protected = 0
        self._releases = 0
        self._commits = 0
        self.told = Telling(self.tree, events=events, evicted=evicted)

    def peek(self, keys: Sequence[CacheKey]) -> NDArray[np.int32]:
        lengths = np.zeros(len(keys), dtype=np.int32)
        tree = self.tree
        for i, key in enumerate(keys):
            root = tree.roots.get(key.namespace)
            if root is not None:
                lengths[i] = self._match(root, self.marks.look_up(key), tree.whole_pages(len(key.tokens))).end
        return lengths

    def forest(self, keys: Sequence[CacheKey]) -> PrefixForest:
        lengths = np.zeros(len(keys), dtype=np.int32)
        paths: list[list[Node]] = [[] for _ in keys]
        for i, key in enumerate(keys):
            root = self.tree.roots.get(key.namespace)
            if root is not None:
                match = self._match(root, self.marks.look_up(key), self.tree.whole_pages(len(key.tokens)))
                lengths[i] = match.end
                paths[i] = match.whole if match.partial is None else [*match.whole, match.partial]
        return PrefixForest.from_paths(paths, lengths)

    def acquire(self, key: CacheKey, limit: int) -> Lease:
        if limit < 0:
            raise ValueError(f"limit must not be negative, got {limit}")
        tree = self.tree
        tokens = self.marks.look_up(key)
        root = tree.root(key.namespace)
        match = self._match(root, tokens, tree.whole_pages(min(limit, len(tokens))))
        slots = match.slots()
        if match.partial is not None:
            node = self._split(match.partial, match.inside)
        else:
            node = match.whole[-1] if match.whole else root
        self._lock(node, None)
        lease = RadixLease(node, match.end, slots, key.priority)
        if self.window is not None:
            lease.floor = self.window.hold(node, match.end)
        self.leases.add(lease)
        return lease

    def commit(self, lease: Lease, key: CacheKey, slots: NDArray[np.int32], *, final: bool) -> Committed:
        held = self._live(lease)
        start = held.length
        end = self.tree.whole_pages(len(key.tokens))
        refuse_bad_commit(held, key, slots)
        if end == start:
            held.used = True
            held.final = final
            return Committed(length=start, slots=held.slots, free=Freed())

        tokens = self.marks.encode(key)
        match = self.tree.descend(held.node, tokens, start, end)
        found = match.slots()
        mine = slots[start : match.end]
        if (mine == found).any():
            self.marks.sweep(tokens)
            raise RuntimeError("a slot is offered that the cache owns already: it would have two owners")

        node = match.whole[-1] if match.whole else held.node
        if match.partial is not None:
            node = self._split(match.partial, match.inside)
        moved = moved_to = NO_SLOTS
        if self.window is not None and match.end > start:
            moved, moved_to = self.window.restore(node, match.end, max(held.floor, start), slots)
        if match.end < end:
            node = self._insert(node, tokens[match.end : end], slots[match.end : end], held.floor - match.end)
        self.marks.sweep(tokens)
        self._lock(node, held.node)
        if self.window is not None:
            self.window.lock(node, end, max(held.floor, start))

        now = np.array(slots[:end], dtype=np.int32)
        now[start : match.end] = found
        held.node = node
        held.length = end
        held.slots = freeze(now)
        held.used = True
        held.final = final
        free = Freed(slots=np.array(mine, dtype=np.int32))
        return Committed(length=end, slots=held.slots, free=free, moved=moved, moved_to=moved_to)

    def slide(self, lease: Lease, floor: int) -> Freed:
        held = self._live(lease)
        if floor % self.tree.page_size:
            raise ValueError(f"a lease slides to {floor}, which is no whole page")
        window = self.window
        if window is None or floor <= held.floor:
            return Freed()
        window.let_go(held.node, held.length, held.floor, floor)
        held.floor = floor
        return Freed()

    def release(self, lease: Lease) -> None:
        held = self._live(lease)
        self.leases.remove(held)
        self._releases += 1
        window = self.window
        if window is not None:
            window.unlock(held.node, held.length, held.floor, held.length)
        node: Node | None = held.node
        root = held.node
        while node is not None:
            node.refs -= 1
            node.recency = self._releases
            if held.used:
                node.uses += 1
                node.priority = max(node.priority, held.priority)
            if node.refs == 0:
                self._protected -= node.length
                self._evictable += node.length
            if window is not None and node.window and not node.window_refs:
                window.queue.push(node)
            root = node
            node = node.parent
        if is_evictable_leaf(held.node):
            self.queue.push(held.node)
        self.tree.drop_root_if_bare(root)

    def evict(self, need: Amounts) -> Freed:
        page, window = self.tree.page_size, self.window
        wanted = round_up(need.slots, page)
        freed: list[Ints] = []
        before = 0 if window is None else window.evictable
        while wanted > 0:
            leaf = self.queue.pop()
            if leaf is None:
                break
            # The tail goes first: what is left of the leaf is still a prefix that somebody may ask for.
            gone = self._cut(leaf, max(0, leaf.length - wanted))
            wanted -= len(gone)
            freed.append(gone)
        if window is None:
            return Freed(slots=joined(freed))
        bare = joined(window.evict(before - round_up(need.window, page), freed, lambda leaf: self._cut(leaf, 0)))
        slots = joined(freed)
        return Freed(
            slots=slots, window=bare[~np.isin(bare, slots)]
        )  # what lost its component may have gone after that

    def sizes(self) -> CacheSizes:
        window = (0, 0) if self.window is None else (self.window.evictable, self.window.protected)
        return CacheSizes(
            evictable=self._evictable, protected=self._protected, window_evictable=window[0], window_protected=window[1]
        )

    def reset(self) -> Freed:
        if self.leases:
            raise RuntimeError(f"reset while {len(self.leases)} leases exist")
        slots = [node.slots for node in self.tree.nodes()]
        self.tree.roots.clear()
        self.queue.clear()
        self.marks = MarkTable()
        self._evictable = 0
        if self.window is not None:
            self.window.clear()
        self.told.cleared()
        return Freed(slots=joined(slots))

    def take_events(self) -> list[CacheEvent]:
        return self.told.take_events()

    def take_evicted(self) -> list[Evicted]:
        return self.told.take_evicted()

    def check(self) -> None:
        check_cache(self)

    def _live(self, lease: Lease) -> RadixLease:
        if not isinstance(lease, RadixLease) or lease not in self.leases:
            raise RuntimeError("this lease was released before, or is not one of this cache")
        return lease

    def _lock(self, node: Node | None, stop: Node | None) -> None:
        """One more lease on `node` and its ancestors below `stop` (None: up to the root)."""
        while node is not stop and node is not None:
            if node.refs == 0:
                self._evictable -= node.length
                self._protected += node.length
            node.refs += 1
            node = node.parent

    def _match(self, root: Node, tokens: Ints, end: int) -> Match:
        """The longest prefix, of at most `end` tokens, that can be used."""
        match = self.tree.descend(root, tokens, 0, end)
        if self.window is None or (usable := self.window.usable(match)) == match.end:
            return match
        return self.tree.descend(root, tokens, 0, usable)

    def _split(self, node: Node, length: int) -> Node:
        return self.tree.split(node, length) if self.window is None else self.window.split(node, length)

    def _insert(self, parent: Node, tokens: Ints, slots: Ints, bare: int) -> Node:
        """The last of the nodes that hold these tokens; bare: how many of them have no component of the window layers."""
        if self.window is not None and 0 < bare < len(tokens):
            parent = self._insert(parent, tokens[:bare], slots[:bare], bare)
            tokens, slots, bare = tokens[bare:], slots[bare:], 0
        node = self.tree.insert(parent, tokens, slots)
        if self.window is not None and bare < len(tokens):
            self.window.add(node)
        self._commits += 1
        node.born = self._commits
        self._evictable += node.length
        self.marks.keep(node.tokens)
        self.told.stored(node, self.marks)
        return node

    def _cut(self, leaf: Node, keep: int) -> Ints:
        """Take all but the first `keep` tokens of an evictable leaf out of the tree, and what cannot be used any more without
        them; returns their slots."""
        window = self.window
        if window is not None and window.useless(leaf, keep):
            keep = 0
        if keep:
            gone = self._trim(leaf, keep)
            self.queue.push(leaf)
            return gone
        parts: list[Ints] = []
        at: Node | None = leaf
        while at is not None:
            parent = at.parent
            parts.append(self._trim(at, 0))
            at = None
            if parent is not None and parent.parent is None:
                self.tree.drop_root_if_bare(parent)
            elif parent is not None and is_evictable_leaf(parent):
                if window is not None and not parent.window:
                    at = parent  # a tombstone on which nothing stands
                else:
                    self.queue.push(parent)
        return joined(parts)

    def _trim(self, leaf: Node, keep: int) -> Ints:
        tokens = leaf.tokens[keep:]
        self._evictable -= len(tokens)
        if leaf.window and self.window is not None:
            self.window.evictable -= len(tokens)
        self.told.removed(leaf, keep, self.marks)
        gone = self.tree.trim(leaf, keep) if keep else leaf.slots
        if not keep:
            self.tree.remove(leaf)
        self.marks.drop(tokens)
        return gone
