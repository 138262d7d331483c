"""The prefix cache over a radix tree: leases, commits, eviction and sizes. It knows slot numbers, not what they hold.

What eviction goes by is written into the nodes of a path when a lease on it ends: what is leased cannot be evicted, so
that is the time that counts. The order is that of the strategy (`strategies.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import (
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
from jackfield_cache_prefix.marks import MarkTable
from jackfield_cache_prefix.options import Eviction
from jackfield_cache_prefix.radix_tree import Ints, Node, RadixTree, freeze
from jackfield_cache_prefix.strategies import make_strategy


class RadixLease(Lease):
    """node: the last node of the leased path; splits keep it at the path's end. final: the last commit was made.
    priority: the request's. used: something was committed; an admission that was taken back is no use."""

    __slots__ = ("final", "node", "priority", "used")

    def __init__(self, node: Node, length: int, slots: Ints, priority: int) -> None:
        super().__init__(length, slots)
        self.node = node
        self.priority = priority
        self.used = False
        self.final = False


class RadixCache(PrefixCache):
    def __init__(
        self, page_size: int, eviction: Eviction = "lru", *, events: bool = False, evicted: bool = False
    ) -> None:
        self.tree = RadixTree(page_size)
        self.marks = MarkTable()
        self.queue = EvictionQueue(make_strategy(eviction))
        self.leases: set[RadixLease] = set()
        self._evictable = 0
        self._protected = 0
        self._releases = 0
        self._commits = 0
        self._events: list[CacheEvent] | None = [] if events else None
        self._evicted: list[Evicted] | None = [] if evicted else None

    def peek(self, keys: Sequence[CacheKey]) -> NDArray[np.int32]:
        lengths = np.zeros(len(keys), dtype=np.int32)
        tree = self.tree
        for i, key in enumerate(keys):
            root = tree.roots.get(key.namespace)
            if root is not None:
                end = tree.whole_pages(len(key.tokens))
                lengths[i] = tree.descend(root, self.marks.look_up(key), 0, end).end
        return lengths

    def forest(self, keys: Sequence[CacheKey]) -> PrefixForest:
        lengths = np.zeros(len(keys), dtype=np.int32)
        paths: list[list[Node]] = [[] for _ in keys]
        for i, key in enumerate(keys):
            root = self.tree.roots.get(key.namespace)
            if root is not None:
                match = self.tree.descend(root, self.marks.look_up(key), 0, self.tree.whole_pages(len(key.tokens)))
                lengths[i] = match.end
                paths[i] = match.whole if match.partial is None else [*match.whole, match.partial]
        return PrefixForest.from_paths(paths, lengths)

    def acquire(self, key: CacheKey, limit: int) -> Lease:
        if limit < 0:
            raise ValueError(f"limit must not be negative, got {limit}")
        tree = self.tree
        tokens = self.marks.look_up(key)
        root = tree.root(key.namespace)
        match = tree.descend(root, tokens, 0, tree.whole_pages(min(limit, len(tokens))))
        slots = match.slots()
        if match.partial is not None:
            node = tree.split(match.partial, match.inside)
        else:
            node = match.whole[-1] if match.whole else root
        self._lock(node, None)
        lease = RadixLease(node, match.end, slots, key.priority)
        self.leases.add(lease)
        return lease

    def commit(self, lease: Lease, key: CacheKey, slots: NDArray[np.int32], *, final: bool) -> Committed:
        held = self._live(lease)
        start = held.length
        end = self.tree.whole_pages(len(key.tokens))
        _refuse_bad_commit(held, key, slots)
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
            node = self.tree.split(match.partial, match.inside)
        if match.end < end:
            node = self._insert(node, tokens[match.end : end], slots[match.end : end])
        self.marks.sweep(tokens)
        self._lock(node, held.node)

        now = np.array(slots[:end], dtype=np.int32)
        now[start : match.end] = found
        held.node = node
        held.length = end
        held.slots = freeze(now)
        held.used = True
        held.final = final
        return Committed(length=end, slots=held.slots, free=Freed(slots=np.array(mine, dtype=np.int32)))

    def release(self, lease: Lease) -> None:
        held = self._live(lease)
        self.leases.remove(held)
        self._releases += 1
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
            root = node
            node = node.parent
        if is_evictable_leaf(held.node):
            self.queue.push(held.node)
        self.tree.drop_root_if_bare(root)

    def evict(self, need: Amounts) -> Freed:
        wanted = -(-need.slots // self.tree.page_size) * self.tree.page_size
        freed: list[Ints] = []
        while wanted > 0:
            leaf = self.queue.pop()
            if leaf is None:
                break
            # The tail goes first: what is left of the leaf is still a prefix that somebody may ask for.
            gone = self._cut(leaf, max(0, leaf.length - wanted))
            wanted -= len(gone)
            freed.append(gone)
        return Freed(slots=np.concatenate(freed)) if freed else Freed()

    def sizes(self) -> CacheSizes:
        return CacheSizes(evictable=self._evictable, protected=self._protected)

    def reset(self) -> Freed:
        if self.leases:
            raise RuntimeError(f"reset while {len(self.leases)} leases exist")
        slots = [node.slots for node in self.tree.nodes()]
        self.tree.roots.clear()
        self.queue.clear()
        self.marks = MarkTable()
        self._evictable = 0
        if self._events is not None:
            self._events.append(CacheEvent(action="cleared"))
        return Freed(slots=np.concatenate(slots)) if slots else Freed()

    def take_events(self) -> list[CacheEvent]:
        if self._events is None:
            return []
        taken, self._events = self._events, []
        return taken

    def take_evicted(self) -> list[Evicted]:
        if self._evicted is None:
            return []
        taken, self._evicted = self._evicted, []
        return taken

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

    def _insert(self, parent: Node, tokens: Ints, slots: Ints) -> Node:
        node = self.tree.insert(parent, tokens, slots)
        self._commits += 1
        node.born = self._commits
        self._evictable += node.length
        self.marks.keep(node.tokens)
        if self._events is not None:
            self._events.append(self._event("stored", node, node.length))
        return node

    def _cut(self, leaf: Node, keep: int) -> Ints:
        """Take all but the first `keep` tokens of an evictable leaf out of the tree; returns their slots."""
        gone_tokens = leaf.tokens[keep:]
        self._evictable -= len(gone_tokens)
        if self._events is not None:
            self._events.append(self._event("removed", leaf, len(gone_tokens)))
        if self._evicted is not None:
            self._note_evicted(leaf, keep)
        if keep:
            gone = self.tree.trim(leaf, keep)
            self.queue.push(leaf)
        else:
            gone = leaf.slots
            parent = leaf.parent
            self.tree.remove(leaf)
            if parent is not None:
                if parent.parent is None:
                    self.tree.drop_root_if_bare(parent)
                elif is_evictable_leaf(parent):
                    self.queue.push(parent)
        self.marks.drop(gone_tokens)
        return gone

    def _note_evicted(self, leaf: Node, keep: int) -> None:
        tokens = self.tree.prefix(leaf)
        if self._evicted is None or (tokens < 0).any():
            return  # media stand in no tier
        key = CacheKey(namespace=leaf.namespace, tokens=tokens, priority=leaf.priority)
        self._evicted.append(Evicted(key=key, slots=self.tree.path_slots(leaf), start=len(tokens) - leaf.length + keep))

    def _event(self, action: str, node: Node, length: int) -> CacheEvent:
        tokens = self.marks.decode(self.tree.prefix(node))
        return CacheEvent(action=action, namespace=node.namespace, tokens=tokens, length=length)


def _refuse_bad_commit(held: RadixLease, key: CacheKey, slots: Ints) -> None:
    """All that can be wrong with a commit's arguments, before anything is changed."""
    if held.final:
        raise RuntimeError("commit after the final commit of this lease")
    if slots.shape != key.tokens.shape:
        raise ValueError(f"{slots.shape} slots for {key.tokens.shape} tokens")
    if key.namespace != held.node.namespace:
        raise ValueError("the key's namespace is not the one that the lease was acquired in")
    if len(key.tokens) < held.length:
        raise ValueError(f"{len(key.tokens)} tokens are committed to a lease that holds {held.length}")
    if not np.array_equal(slots[: held.length], held.slots):
        raise ValueError("the first slots are not the lease's: the row was not rewritten after acquire or commit")
    fresh = key.tokens[held.length :]
    if len(fresh) and fresh.min() < 0:
        raise ValueError(f"token ids must not be negative, got {int(fresh.min())}")
