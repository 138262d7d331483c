"""KV memory as the scheduler uses it: allocator, request-to-token table and prefix cache behind one object, so that nobody
else moves slots. What can be had is told by `available`, what a step lacks by `lacking`; a cache that raises half-way stops
the replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import (
    Amounts,
    CacheEvent,
    CacheKey,
    CacheSizes,
    Committed,
    FaultScope,
    Freed,
    Lease,
    PrefixCache,
    PrefixForest,
    WorkerLimits,
)
from jackfield.managers.scheduler.cache_answers import BadCacheAnswer, of_type
from jackfield.managers.scheduler.loading import Loading, Tiers
from jackfield.managers.scheduler.running import RunningTable
from jackfield.managers.scheduler.stop_on_fault import StopOnFault
from jackfield.managers.scheduler.watchers import Ledger
from jackfield.managers.scheduler.window import Window
from jackfield.mem_cache.accounting import SlotAccounts
from jackfield.mem_cache.allocator import TokenToKVPoolAllocator
from jackfield.mem_cache.req_to_token import ReqToTokenPool
from jackfield.stack.errors import PLUGIN_ERRORS


class KVMemory:
    """changes   counts what may have altered the cache's contents, so that hints are renewed only then
    evicted   tokens evicted from the cache so far
    loading   slots that are being filled by loads
    tiers     set when there are any
    evict_at_least   slots asked of the cache at a time, so that tiers are told of whole blocks
    window    the smaller pool of window layers; None: the worker has none
    """

    def __init__(
        self, limits: WorkerLimits, cache: PrefixCache, ledger: Ledger, cache_name: str, window: Window | None = None
    ) -> None:
        self.page_size = limits.page_size
        self.total = limits.total_slots
        self.rows = ReqToTokenPool(limits.max_rows, limits.max_context, limits.page_size)
        self.allocator = TokenToKVPoolAllocator(limits.total_slots, limits.page_size)
        self.changes = 0
        self.evicted = 0
        self.loading = 0
        self.tiers: Tiers | None = None
        self.evict_at_least = 0
        self.window = window
        self._cache = cache
        self._ledger = ledger
        self._cache_name = cache_name
        self._stop_on_fault = StopOnFault(ledger, cache_name)

    # ---- numbers

    def free_slots(self) -> int:
        return self.allocator.available()

    def sizes(self) -> CacheSizes:
        """The cache's own, and as pending also what loads are filling."""
        with self._stop_on_fault:
            sizes = of_type(self._cache.sizes(), CacheSizes, "sizes")
        return replace(sizes, pending=sizes.pending + self.loading) if self.loading else sizes

    def accounts(self, held: int) -> SlotAccounts:
        """Where every slot is; `held` is what running requests own outside the cache."""
        sizes = self.sizes()
        return SlotAccounts(
            total=self.total,
            free=self.allocator.available(),
            evictable=sizes.evictable,
            protected=sizes.protected,
            pending=sizes.pending,
            held=held,
        )

    def available(self) -> int:
        """Slots that can be had now: the free ones, and those that the cache would give back."""
        return self.allocator.available() + self.sizes().evictable

    def lacking(self, running: RunningTable, rows: NDArray[np.intp], ends: NDArray[np.int32]) -> int:
        """Slots, whole pages, that are missing for these running requests to hold `ends` tokens [n]; 0 if none are."""
        short = ends - running["allocated"][rows]
        if not np.count_nonzero(short > 0):  # their last pages have room
            return 0
        short = np.maximum(short, 0)
        if self.page_size > 1:
            short = (short + (self.page_size - 1)) // self.page_size
        slots = int(short.sum()) * self.page_size
        lacking = 0 if slots <= self.allocator.available() else max(0, slots - self.available())
        if self.window is not None and slots > self.window.pool.available():
            lacking = max(lacking, slots - self.window.available(self.sizes()))
        return lacking

    # ---- the cache

    def peek(self, keys: Sequence[CacheKey]) -> NDArray[np.int32]:
        """Cached lengths, a hint: all 0 if the cache fails at it, which is booked."""
        try:
            lengths = of_type(self._cache.peek(keys), np.ndarray, "peek")
            if lengths.shape != (len(keys),) or lengths.dtype.kind not in "iu":
                raise BadCacheAnswer(f"peek returned {lengths.dtype} of shape {lengths.shape} for {len(keys)} keys")
            if len(keys) and not 0 <= lengths.min() <= lengths.max() <= max(len(key.tokens) for key in keys):
                raise BadCacheAnswer(f"peek returned lengths {lengths.min()} .. {lengths.max()}")
            return lengths
        except PLUGIN_ERRORS as error:
            self._ledger.record(self._cache_name, FaultScope.DEGRADE, error)
            return np.zeros(len(keys), dtype=np.int32)

    def forest(self, keys: Sequence[CacheKey]) -> PrefixForest | None:
        """The cache's shape over these keys; None if the cache fails at it, which is booked."""
        try:
            forest = of_type(self._cache.forest(keys), PrefixForest, "forest")
            if not len(forest.node) == len(forest.matched) == len(keys):
                raise BadCacheAnswer(f"forest tells of {len(forest.node)} keys where {len(keys)} were asked about")
            return forest
        except PLUGIN_ERRORS as error:
            self._ledger.record(self._cache_name, FaultScope.DEGRADE, error)
            return None

    def acquire(self, key: CacheKey, limit: int) -> Lease:
        with self._stop_on_fault:
            lease = of_type(self._cache.acquire(key, limit), Lease, "acquire")
            if not 0 <= lease.length <= limit or lease.length % self.page_size or len(lease.slots) < lease.length:
                raise BadCacheAnswer(
                    f"acquire returned a lease of {lease.length} tokens with {len(lease.slots)} slots; whole pages of "
                    f"{self.page_size} up to {limit} tokens are allowed"
                )
            return lease

    def release(self, lease: Lease) -> None:
        with self._stop_on_fault:
            self._cache.release(lease)

    def commit(self, lease: Lease, key: CacheKey, row: int, *, final: bool, floor: int = 0) -> Committed:
        """Offer the KV of `key`'s tokens in `row`, that of window layers from `floor` on, rewrite the row to what the cache
        kept, then free the duplicates."""
        slots = self.rows.table[row, : len(key.tokens)].copy()
        before = lease.length
        if self.window is not None:
            self.slide(lease, floor)
        with self._stop_on_fault:
            committed = of_type(self._cache.commit(lease, key, slots, final=final), Committed, "commit")
            if not before <= committed.length <= len(slots) or len(committed.slots) != committed.length:
                raise BadCacheAnswer(
                    f"commit returned {committed.length} tokens with {len(committed.slots)} slots; between {before} "
                    f"(the lease) and {len(slots)} (what was offered) are allowed"
                )
            of_type(committed.free, Freed, "commit's free")
        self.changes += committed.length > before
        if not final and not np.array_equal(committed.slots, slots[: committed.length]):
            changed = np.flatnonzero(committed.slots != slots[: committed.length])
            first, last = int(changed[0]), int(changed[-1]) + 1
            self.rows.write(row, first, committed.slots[first:last])
        if self.window is not None and len(committed.moved):
            with self._stop_on_fault:
                self.window.pool.move(committed.moved, committed.moved_to)
        self._give_back(committed.free)
        if self.tiers is not None:
            self.tiers.committed(key, committed.slots)
        return committed

    def slide(self, lease: Lease, floor: int) -> None:
        """The window layers no longer read tokens below `floor` for this lease."""
        with self._stop_on_fault:
            freed = of_type(self._cache.slide(lease, floor), Freed, "slide")
        self._give_back(freed)

    def poll(self) -> bool:
        """Slots of finished copies come back. Whether there were any."""
        with self._stop_on_fault:
            freed = of_type(self._cache.poll(), Freed, "poll")
        self._give_back(freed)
        self.changes += len(freed.slots) > 0
        return len(freed.slots) > 0

    def reset(self) -> None:
        """Forget every cached prefix. Only while no lease exists."""
        with self._stop_on_fault:
            freed = of_type(self._cache.reset(), Freed, "reset")
        self.changes += 1
        self._give_back(freed)
        if self.tiers is not None:
            self.tiers.clear()

    def take_events(self) -> list[CacheEvent]:
        with self._stop_on_fault:
            return self._cache.take_events()

    def check_cache(self) -> None:
        self._cache.check()

    # ---- loads

    def begin_load(self, key: CacheKey, base: int, end: int, promised: int) -> Loading | None:
        """Slots for the KV of tokens `.. end` of `key`, from where the cache ends. None if it ends before `base` or holds
        all of it, or if the pool has no such room beside what is promised."""
        lease = self.acquire(key, end)
        need = end - lease.length
        if lease.length < base or need <= 0 or self.available() < need + promised:
            self.release(lease)
            return None
        self.loading += need
        upto = CacheKey(namespace=key.namespace, tokens=key.tokens[:end], priority=key.priority)
        return Loading(key=upto, lease=lease, slots=self._allocate(need // self.page_size))

    def finish_load(self, load: Loading) -> None:
        """The slots hold the KV: they go into the cache, those that it has by now are freed."""
        lease = load.lease
        slots = np.concatenate([lease.slots[: lease.length], load.slots])
        with self._stop_on_fault:
            committed = of_type(self._cache.commit(lease, load.key, slots, final=True), Committed, "commit")
        self.loading -= len(load.slots)
        self.changes += 1
        self._give_back(committed.free)
        self.free(slots[committed.length :])
        self.release(lease)

    def drop_load(self, load: Loading) -> None:
        """The copy failed: the slots hold nothing."""
        self.loading -= len(load.slots)
        self.free(load.slots)
        self.release(load.lease)

    # ---- slots

    def grow(self, running: RunningTable, rows: NDArray[np.intp], ends: NDArray[np.int32]) -> None:
        """Give these running requests enough pages for `ends` tokens [n], evicting where needed.

        Raises OutOfSlots for more than `lacking` found.
        """
        have = running["allocated"][rows]
        short = ends > have
        those = np.count_nonzero(short)
        if not those:
            return
        if those < len(rows):
            rows, have, ends = rows[short], have[short], ends[short]
        pages = ends - have
        if self.page_size > 1:
            pages = (pages + (self.page_size - 1)) // self.page_size
        slots = self._allocate(int(pages.sum()))
        added = pages.astype(np.int32) * np.int32(self.page_size)
        self.rows.write_runs(running["row"][rows], have, added, slots)
        running["allocated"][rows] += added
        running["held_tokens"][rows] += added

    def free(self, slots: NDArray[np.int32]) -> None:
        self.allocator.free(slots)
        if self.window is not None:
            self.window.pool.detach(slots)

    def _allocate(self, pages: int) -> NDArray[np.int32]:
        window = self.window
        missing = max(0, pages * self.page_size - self.allocator.available())
        scarce = 0 if window is None else max(0, pages * self.page_size - window.pool.available())
        if missing or scarce:
            need = Amounts(slots=max(missing, self.evict_at_least) if missing else 0, window=scarce)
            with self._stop_on_fault:
                before = of_type(self._cache.sizes(), CacheSizes, "sizes")
                narrow = 0 if window is None else window.available(before)
                freed = of_type(self._cache.evict(need), Freed, "evict")
                if len(freed.slots) < min(missing, before.evictable):
                    raise BadCacheAnswer(
                        f"evict gave {len(freed.slots)} slots back, where {missing} were asked for and {before.evictable} "
                        "evictable"
                    )
                if self.tiers is not None:
                    self.tiers.evicted(self._cache.take_evicted())
            self.changes += 1
            self.evicted += len(freed.slots)
            self._give_back(freed)
            if window is not None and window.pool.available() < min(narrow, pages * self.page_size):
                with self._stop_on_fault:
                    raise BadCacheAnswer(
                        f"evict left too little of the window pool free, where {scarce} were asked for"
                    )
        slots = self.allocator.alloc(pages)
        if window is not None:
            window.pool.attach(slots)
        return slots

    def _give_back(self, freed: Freed) -> None:
        with self._stop_on_fault:  # a slot that is free already, or none of the pool's, is the cache's fault
            self.free(freed.slots)
            if self.window is not None:
                self.window.pool.detach(freed.window)
