"""What running requests hold of the window pool: as they go on, pages that the window layers no longer read come back, and
how much each may still take is bounded whatever its length.

A request has KV of the window layers from its column `floor` on, whole pages: in pages of its own, and before the end of its
lease in pages of the cache, which the lease protects. The floor follows what is committed, so that a step in flight, which
began at committed tokens or later, still finds what it reads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import CacheSizes, Lease, WorkerLimits, window_floor
from jackfield.managers.scheduler.running import RunningTable
from jackfield.mem_cache.accounting import SlotAccounts, round_up
from jackfield.mem_cache.req_to_token import ReqToTokenPool
from jackfield.mem_cache.window_pool import WindowPool

Slide = Callable[[Lease, int], None]


class Window:
    """tokens   what the window layers look back
    stride   a lease is told of its floor when it moved so far: that costs a call for each request
    chunk    most tokens of one prompt in one step; None: a prompt is never cut
    """

    def __init__(self, limits: WorkerLimits, tokens: int, chunk: int | None) -> None:
        self.tokens = tokens
        self.page_size = limits.page_size
        self.pool = WindowPool(
            total_slots=limits.total_slots, window_slots=limits.window_slots, page_size=limits.page_size
        )
        self.stride = window_stride(tokens, limits.page_size)
        self._chunk = chunk

    def floor(self, length: int) -> int:
        """Where a request begins whose first `length` tokens are there."""
        return window_floor(length, self.tokens, self.page_size)

    def need(self, slots: int, missing: int, per_row: int) -> int:
        """How many of the `slots` that a request will take from its floor on it may have at a time; `missing`: tokens known
        already that are to be computed."""
        step = per_row + (missing if self._chunk is None else min(missing, self._chunk))
        return min(slots, most_held(self.tokens, self.page_size, step))

    def promises(self, running: RunningTable, ratio: float) -> NDArray[np.int32]:
        """Slots that each row may take beyond those it has [len]. Negative where steps in flight took more than it may keep,
        which comes back with their commit."""
        most = most_held(self.tokens, self.page_size, 0) + self._step(running)
        promised: NDArray[np.int32] = np.minimum(running.promises(ratio, self.page_size), most - self.held(running))
        return promised

    def reserved(self, running: RunningTable, ratio: float) -> int:
        """Slots that all rows may have at a time, with what they have while steps are in flight, and one step more. Windows
        that they share in the cache count for each of them, so that whoever leaves takes nothing from the others."""
        held, promised = self.held(running), self.promises(running, ratio)
        step = np.minimum(running.promises(ratio, self.page_size), self._step(running))
        return int((held + np.maximum(promised, step)).sum())

    def held(self, running: RunningTable) -> NDArray[np.int32]:
        """Slots of the window pool that each row has, its own and those that its lease protects [len]."""
        held: NDArray[np.int32] = running["allocated"] - running["floor"]
        return held

    def _step(self, running: RunningTable) -> NDArray[np.int32]:
        """The most that each row may compute in one step, whole pages [len]."""
        left = np.maximum(running["goal"] - running["computed"], 0)
        step = (left if self._chunk is None else np.minimum(left, self._chunk)) + running.per_row
        whole: NDArray[np.int32] = (step + (self.page_size - 1)) // self.page_size * self.page_size
        return whole

    def slide(self, running: RunningTable, rows: NDArray[np.intp], table: ReqToTokenPool, slide: Slide) -> None:
        """After a commit: what these rows no longer read comes back. `slide` tells the cache of a lease's new floor."""
        size = self.page_size
        written = running["written"][rows]
        floors = np.maximum(written - written % size - (max(self.tokens, 2) - 1), 0) // size * size
        moved = floors > running["floor"][rows]
        if not moved.any():
            return
        rows, floors = rows[moved], floors[moved]
        leased = running["allocated"][rows] - running["held_tokens"][rows]
        inside = running["floor"][rows] < leased
        if inside.any():
            wait = inside & (floors < leased) & (floors - running["floor"][rows] < self.stride)
            if wait.any():
                rows, floors, leased, inside = rows[~wait], floors[~wait], leased[~wait], inside[~wait]
            for request, floor in zip(running["request"][rows[inside]].tolist(), floors[inside].tolist(), strict=True):
                slide(request.lease, floor)
        begins = np.maximum(running["floor"][rows], leased)
        pages = np.maximum(floors - begins, 0) // size
        running["floor"][rows] = floors
        total = int(pages.sum())
        if total:
            place = np.arange(total) - np.repeat(np.cumsum(pages) - pages, pages)
            first = table.table[np.repeat(running["row"][rows], pages), np.repeat(begins, pages) + place * size]
            self.pool.detach_pages(first // np.int32(size))

    def available(self, sizes: CacheSizes) -> int:
        """Slots of the window pool that can be had now."""
        return self.pool.available() + sizes.window_evictable

    def accounts(self, held: int, sizes: CacheSizes) -> SlotAccounts:
        """Where every slot of the window pool is; `held` is what running requests own outside the cache."""
        return SlotAccounts(
            total=self.pool.total,
            free=self.pool.available(),
            evictable=sizes.window_evictable,
            protected=sizes.window_protected,
            pending=0,
            held=held,
        )

    def numbers(self, running: RunningTable, sizes: CacheSizes) -> dict[str, int]:
        """The accounts for people."""
        leased = running["allocated"] - running["held_tokens"]
        held = int((running["allocated"] - np.maximum(running["floor"], leased)).sum())
        accounts = self.accounts(held, sizes)
        return {name: getattr(accounts, name) for name in ("total", "free", "evictable", "protected", "held")}


def window_stride(tokens: int, page_size: int) -> int:
    return round_up(max(1, tokens // 4), page_size)


def most_held(tokens: int, page_size: int, step: int) -> int:
    """Slots of the window pool that a request has at most, when it computes `step` tokens at a time and nothing of it is in
    flight: the window, what a lease may lag behind, the step, and the ends of pages."""
    return round_up(tokens + window_stride(tokens, page_size), page_size) + round_up(step, page_size) + 3 * page_size
