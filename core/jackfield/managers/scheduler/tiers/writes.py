"""The way down: KV that entered the prefix cache, or is about to leave it, is copied to the tiers block by block.

A copy holds no slots: the mover's reads are ordered with the launches, so what is read is what was there when it was asked
for, whoever gets the slots next.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import CacheKey, Evicted, KVMover, Moved
from jackfield.managers.scheduler.tiers.blocks import block_keys
from jackfield.managers.scheduler.tiers.runner import TierRunner

COPY_BYTES = 256 * 2**20
"""Bytes that may be under way from the worker at once; blocks beyond are not kept."""
COUNTED_BLOCKS = 1 << 16
"""Blocks whose requests are counted at once, the newest."""

Targets = list[TierRunner]


class TierWrites:
    """failed, dropped: blocks whose copy failed, and those that found too much under way."""

    def __init__(self, mover: KVMover, runners: Sequence[TierRunner], fingerprint: bytes, block: int) -> None:
        self.failed = 0
        self.dropped = 0
        self._mover = mover
        self._through = [runner for runner in runners if runner.rule.write == "through"]
        self._back = [runner for runner in runners if runner.rule.write == "back"]
        self._counts = any(runner.rule.write_after > 1 for runner in self._through)
        self._fingerprint = fingerprint
        self._block = block
        self._asked: dict[bytes, int] = {}
        self._copies: dict[int, list[tuple[bytes, Targets]]] = {}
        self._copying: set[bytes] = set()

    def count(self, keys: Sequence[bytes]) -> None:
        """One more request has these blocks in its prompt."""
        if not self._counts:
            return
        for key in keys:
            self._asked[key] = self._asked.pop(key, 0) + 1
        while len(self._asked) > COUNTED_BLOCKS:
            del self._asked[next(iter(self._asked))]

    def committed(self, key: CacheKey, slots: NDArray[np.int32]) -> None:
        """The cache holds the KV of `key`'s first len(slots) tokens in `slots`."""
        if self._through:
            names = block_keys(self._fingerprint, key, len(slots), self._block)
            self._copy(names, slots, [self._wanted(name, self._through) for name in names])

    def evicted(self, runs: Sequence[Evicted]) -> None:
        """The cache gives these up; the slots are not given to anybody yet."""
        if not self._back:
            return
        for run in runs:
            names = block_keys(self._fingerprint, run.key, len(run.slots), self._block)
            first = run.start // self._block
            wanted = [self._wanted(name, self._back) if i >= first else [] for i, name in enumerate(names)]
            self._copy(names, run.slots, wanted)

    def moved(self, moved: Moved) -> bool:
        """A copy has ended; False if it is none of these."""
        copies = self._copies.pop(moved.ticket, None)
        if copies is None:
            return False
        for i, (name, targets) in enumerate(copies):
            self._copying.discard(name)
            if moved.data is None:
                self.failed += 1
                continue
            block = moved.data[i * self._block : (i + 1) * self._block].tobytes()
            for runner in targets:
                runner.put(name, block)
        return True

    def forget(self) -> None:
        """The cache is flushed: what is under way goes nowhere."""
        for ticket, copies in self._copies.items():
            self._copies[ticket] = [(name, []) for name, _ in copies]
        self._asked.clear()

    @property
    def pending(self) -> int:
        return len(self._copies)

    def _wanted(self, name: bytes, runners: Targets) -> Targets:
        if name in self._copying:
            return []
        asked = self._asked.get(name, 0) if self._counts else 0
        return [
            runner
            for runner in runners
            if (runner.rule.write == "back" or runner.rule.write_after <= max(1, asked)) and runner.wants(name)
        ]

    def _copy(self, names: list[bytes], slots: NDArray[np.int32], wanted: list[Targets]) -> None:
        room = COPY_BYTES // (self._block * self._mover.bytes_per_slot) - len(self._copying)
        chosen = [i for i, targets in enumerate(wanted) if targets]
        if len(chosen) > room:
            self.dropped += len(chosen) - max(0, room)
            chosen = chosen[: max(0, room)]  # the front of a prefix is worth more than its end
        if not chosen:
            return
        places = np.concatenate([slots[i * self._block : (i + 1) * self._block] for i in chosen])
        ticket = self._mover.read(places.astype(np.int32, copy=False))
        self._copies[ticket] = [(names[i], wanted[i]) for i in chosen]
        self._copying.update(names[i] for i in chosen)
