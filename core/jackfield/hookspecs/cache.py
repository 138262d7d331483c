"""Kind `cache`: the prefix cache. It moves slot numbers and never touches the allocator or device memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs.common import Amounts, Freed, PluginContext, no_slots
from jackfield.hookspecs.markers import hookspec


@dataclass(frozen=True, kw_only=True)
class CacheKey:
    """What identifies KV: two keys share KV exactly as far as namespace, tokens and marks agree.

    namespace   weight version, adapter generation and salt, encoded by the core; opaque here
    tokens      int32 [n]; must not be changed by anyone after it was handed over
    marks       (position, media digest) of non-text inputs
    priority    int32, the request's; higher is more urgent. No part of the identity: a cache may evict by it
    """

    namespace: bytes
    tokens: NDArray[np.int32]
    marks: tuple[tuple[int, bytes], ...] = ()
    priority: int = field(default=0, compare=False)


class Lease:
    """A request's hold on its matched prefix: while it lives, none of these slots is evicted.

    length     tokens held, whole pages; grows when a `commit` adds to it
    slots      int32 [length]; slots[i] holds the KV of token i
    loadable   further tokens that a slower tier could load

    A lease on nothing is Lease(0, NO_SLOTS). Subclass it to keep a receipt (the node, say); the receipt is private to the
    cache, so that splits do not matter.
    """

    __slots__ = ("length", "loadable", "slots")

    def __init__(self, length: int, slots: NDArray[np.int32], loadable: int = 0) -> None:
        self.length = length
        self.slots = slots
        self.loadable = loadable


@dataclass(frozen=True, kw_only=True)
class Committed:
    """The answer of `commit`.

    length   leading tokens that the cache owns for this key from now on and that the lease protects; whole pages.
             The caller keeps owning its slots from `length` on.
    slots    int32 [length]: what the request's row must now hold there. The caller rewrites the row *before* it frees.
    free     slots of the caller that turned out to be duplicates; now the caller's to give to the allocator.
             Freed() for none
    moved    feature "window": some of `free.slots`, whole pages, int32 [k]: their KV of the window layers becomes that of
             `moved_to` [k], slots of the cache that had none. The caller does that before it frees
    """

    length: int
    slots: NDArray[np.int32]
    free: Freed
    moved: NDArray[np.int32] = field(default_factory=no_slots)
    moved_to: NDArray[np.int32] = field(default_factory=no_slots)


@dataclass(frozen=True, kw_only=True)
class CacheSizes:
    """Token slots in the cache, whole pages: evictable (no lease), protected (leased), pending (a copy is under way).

    window_evictable, window_protected   feature "window": slots whose KV of the window layers is there, and those of them
                                         that some lease still reads
    """

    evictable: int
    protected: int
    pending: int = 0
    window_evictable: int = 0
    window_protected: int = 0


@dataclass(frozen=True, kw_only=True)
class CacheEvent:
    """For routers. action: "stored", "removed" or "cleared"; tokens: whole prefix of the block; length: the block's."""

    action: str
    namespace: bytes = b""
    tokens: tuple[int, ...] = ()
    length: int = 0


@dataclass(frozen=True, kw_only=True)
class Evicted:
    """What a cache gave up, for tiers.

    key     namespace and all tokens up to the end of what went
    slots   int32 [len(key.tokens)]: slots[i] holds the KV of token i, and still does
    start   tokens that the cache keeps; those from `start` on are the ones that went. Whole pages
    """

    key: CacheKey
    slots: NDArray[np.int32]
    start: int


@dataclass(frozen=True, kw_only=True)
class PrefixForest:
    """The part of the cache's trees that some keys follow, as arrays over nodes [m] and over the keys [k]. Read-only.

    Nodes are numbered parents first, and otherwise in the order in which the keys first pass through them.

    parent    intp [m]; -1: the node begins at a root
    weight    int32 [m]: keys that end in the node or below it
    node      intp [k]: the node in which the key's match ends, perhaps inside it; -1: nothing of the key is cached
    matched   int32 [k]: cached tokens of the key, whole pages, as `PrefixCache.peek` gives them
    """

    parent: NDArray[np.intp]
    weight: NDArray[np.int32]
    node: NDArray[np.intp]
    matched: NDArray[np.int32]

    @classmethod
    def from_paths(cls, paths: Sequence[Sequence[Hashable]], matched: NDArray[np.int32]) -> PrefixForest:
        """From the names of the nodes that each key passes through, from the root down; one name, one node."""
        numbers: dict[Hashable, int] = {}
        parent: list[int] = []
        node = np.full(len(paths), -1, dtype=np.intp)
        for i, path in enumerate(paths):
            above = -1
            for name in path:
                number = numbers.setdefault(name, len(parent))
                if number == len(parent):
                    parent.append(above)
                above = number
            node[i] = above
        weight = np.bincount(node[node >= 0], minlength=len(parent)).astype(np.int32)
        for number in range(len(parent) - 1, -1, -1):
            if parent[number] >= 0:
                weight[parent[number]] += weight[number]
        forest = cls(parent=np.array(parent, dtype=np.intp), weight=weight, node=node, matched=matched.astype(np.int32))
        for array in (forest.parent, forest.weight, forest.node, forest.matched):
            array.flags.writeable = False
        return forest


class PrefixCache(ABC):
    """Called from one thread. Every method that changes state either succeeds whole or raises before it changed anything;
    an exception half-way stops the replica (`FaultScope.STOP`)."""

    @abstractmethod
    def peek(self, keys: Sequence[CacheKey]) -> NDArray[np.int32]:
        """Cached length of each key, whole pages, int32 [len(keys)]. Pure: no recency, no split, no I/O."""

    @abstractmethod
    def acquire(self, key: CacheKey, limit: int) -> Lease:
        """Match and lock in one act: the longest cached prefix of whole pages, at most `limit` tokens (any int >= 0)."""

    @abstractmethod
    def commit(self, lease: Lease, key: CacheKey, slots: NDArray[np.int32], *, final: bool) -> Committed:
        """Offer KV that is fully written: `slots` int32 [len(key.tokens)], slots[i] holding token i.

        Called after a chunk (final=False) and at the request's end (final=True: no further commit follows). The first
        `lease.length` slots are the lease's own. The lease grows to `Committed.length`; it still has to be released.
        """

    @abstractmethod
    def release(self, lease: Lease) -> None:
        """End a lease, exactly once. Raises RuntimeError on the second call."""

    @abstractmethod
    def evict(self, need: Amounts) -> Freed:
        """Give back at least `need.slots` if that much is evictable, else all that is. Only what is reusable now. Likewise
        `need.window`, to which the KV of window layers counts whose slots stay in the cache (`Freed.window`)."""

    @abstractmethod
    def sizes(self) -> CacheSizes:
        """O(1)."""

    @abstractmethod
    def reset(self) -> Freed:
        """Forget everything. Raises RuntimeError while leases exist. The slots go back to the caller."""

    @abstractmethod
    def check(self) -> None:
        """Verify the cache's own invariants; may be slow. Raises AssertionError with what is wrong."""

    def slide(self, lease: Lease, floor: int) -> Freed:
        """Feature "window": the window layers no longer read tokens below `floor` (whole pages, never falling) for this
        lease, and a commit after it offers their KV from `floor` on only. Called before every commit, and now and then while
        `floor` is inside the lease. An acquired lease begins at `window_floor` of its length: from there on the KV of the
        window layers is there for all its slots, and stays until the lease slides or ends."""
        return Freed()

    def poll(self) -> Freed:
        """Finished write-backs and loads."""
        return Freed()

    def take_evicted(self) -> list[Evicted]:
        """What `evict` gave up since the last call, in order; asked before the slots are given to anybody. Empty unless
        `CacheContext.evicted`; a cache whose manifest has the feature `evicted` tells all of it, that with marks apart."""
        return []

    def forest(self, keys: Sequence[CacheKey]) -> PrefixForest | None:
        """The tree's shape over these keys, for policies that need `forest`. Pure, as `peek`. None: not offered; a cache
        whose manifest has the feature `forest` always answers."""
        return None

    def take_events(self) -> list[CacheEvent]:
        """Events since the last call, in order. Empty unless `CacheContext.events`."""
        return []


@dataclass(frozen=True, kw_only=True)
class CacheContext(PluginContext):
    """page_size: slots a page, >= 1; total_slots: size of the pool; events: whether anybody listens to cache events;
    evicted: whether anybody asks for `take_evicted`; window: `WorkerLimits.window`, only for a cache that declares the
    feature `window`."""

    page_size: int
    total_slots: int
    events: bool = False
    evicted: bool = False
    window: int | None = None


def window_floor(length: int, window: int, page_size: int) -> int:
    """The first token of `length` ones, whole pages down, that the window layers may still read when the sequence goes on
    behind the last whole page of them."""
    return max(0, length - length % page_size - max(window, 2) + 1) // page_size * page_size


class PrefixCacheSpecs:
    @hookspec
    def jackfield_prefix_cache(self, context: CacheContext) -> PrefixCache:  # type: ignore[empty-body]
        """Make the prefix cache.

        Process: scheduler. When: once at start, after the pool was sized. Cost: any. Example:

            @hookimpl
            def jackfield_prefix_cache(context: CacheContext) -> PrefixCache:
                from my_package.cache import MyCache

                return MyCache(page_size=context.page_size)
        """
