"""Blocks of one page in one dictionary. A block's name is a hash of its tokens and of the name of the block before it, so
that a name stands for the whole prefix, and no tree is needed to find it."""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import Amounts, CacheKey, CacheSizes, Committed, Freed, Lease, PrefixCache
from lfu_cache.options import LfuOptions


@dataclass(eq=False)
class _Block:
    """depth: blocks before it; uses: what its uses are worth; last: when it was used last"""

    slots: NDArray[np.int32]
    depth: int
    leases: int = 0
    uses: float = 0.0
    last: int = 0


class _BlockLease(Lease):
    __slots__ = ("names", "open")

    def __init__(self, names: list[bytes], slots: NDArray[np.int32]) -> None:
        super().__init__(len(slots), slots)
        self.names = names
        self.open = True


class LfuCache(PrefixCache):
    def __init__(self, options: LfuOptions, page_size: int) -> None:
        self._growth = 2.0 ** (1 / options.half_life)
        self._worth = 1.0  # of one use now: it grows instead of the old ones shrinking
        self._size = page_size
        self._blocks: dict[bytes, _Block] = {}
        self._clock = self._leases = self._leased_blocks = 0

    def peek(self, keys: Sequence[CacheKey]) -> NDArray[np.int32]:
        return np.array([len(self._found(key, len(key.tokens))) * self._size for key in keys], dtype=np.int32)

    def acquire(self, key: CacheKey, limit: int) -> Lease:
        names = self._found(key, limit)
        self._clock += 1
        self._worth *= self._growth
        if self._worth > 1e100:
            for block in self._blocks.values():
                block.uses /= self._worth
            self._worth = 1.0
        self._hold(names)
        self._leases += 1
        return _BlockLease(names, self._slots(names))

    def commit(self, lease: Lease, key: CacheKey, slots: NDArray[np.int32], *, final: bool) -> Committed:
        own = _own(lease)
        new = list(self._names(key, len(key.tokens)))[len(own.names) :]
        duplicates = []
        for depth, name in enumerate(new, start=len(own.names)):
            mine = np.array(slots[depth * self._size : (depth + 1) * self._size])
            if name in self._blocks:
                duplicates.append(mine)
            else:
                self._blocks[name] = _Block(mine, depth)
        self._hold(new)
        own.names += new
        own.slots = self._slots(own.names)
        own.length = len(own.slots)
        return Committed(length=own.length, slots=own.slots, free=Freed(slots=_joined(duplicates)))

    def release(self, lease: Lease) -> None:
        own = _own(lease)
        own.open = False
        for name in own.names:
            block = self._blocks[name]
            block.leases -= 1
            self._leased_blocks -= not block.leases
        self._leases -= 1

    def evict(self, need: Amounts) -> Freed:
        """Whoever uses a block uses all before it, so those are worth as much and go later: prefixes stay whole."""
        free = [
            (block.uses, block.last, -block.depth, name) for name, block in self._blocks.items() if not block.leases
        ]
        wanted = -(-need.slots // self._size)
        gone = [self._blocks.pop(name) for *_, name in heapq.nsmallest(wanted, free)]
        return Freed(slots=_joined([block.slots for block in gone]))

    def sizes(self) -> CacheSizes:
        free = len(self._blocks) - self._leased_blocks
        return CacheSizes(evictable=free * self._size, protected=self._leased_blocks * self._size)

    def reset(self) -> Freed:
        if self._leases:
            raise RuntimeError(f"{self._leases} leases exist")
        slots = _joined([block.slots for block in self._blocks.values()])
        self._blocks.clear()
        return Freed(slots=slots)

    def check(self) -> None:
        slots = _joined([block.slots for block in self._blocks.values()])
        assert len(np.unique(slots)) == len(slots), "a slot is cached twice"
        assert sum(block.leases > 0 for block in self._blocks.values()) == self._leased_blocks, "leases are miscounted"

    def _names(self, key: CacheKey, limit: int) -> Iterator[bytes]:
        """Of each whole page: a hash of all that identifies its KV."""
        name = hashlib.blake2b(key.namespace, digest_size=16).digest()
        for start in range(0, min(limit, len(key.tokens)) // self._size * self._size, self._size):
            block = hashlib.blake2b(name + key.tokens[start : start + self._size].tobytes(), digest_size=16)
            for position, digest in key.marks:
                if start <= position < start + self._size:
                    block.update(position.to_bytes(8, "little") + digest)
            name = block.digest()
            yield name

    def _found(self, key: CacheKey, limit: int) -> list[bytes]:
        return list(itertools.takewhile(self._blocks.__contains__, self._names(key, limit)))

    def _hold(self, names: Sequence[bytes]) -> None:
        for name in names:
            block = self._blocks[name]
            self._leased_blocks += not block.leases
            block.leases += 1
            block.uses += self._worth
            block.last = self._clock

    def _slots(self, names: Sequence[bytes]) -> NDArray[np.int32]:
        return _joined([self._blocks[name].slots for name in names])


def _own(lease: Lease) -> _BlockLease:
    if not isinstance(lease, _BlockLease) or not lease.open:
        raise RuntimeError("this lease was released already, or is not of this cache")
    return lease


def _joined(parts: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)
