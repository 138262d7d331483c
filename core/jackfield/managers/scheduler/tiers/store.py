"""The tiers of a run as the scheduler sees them: told of commits and evictions, asked in turns, with one gate for loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import CacheKey, Evicted, KVMover, KVTier
from jackfield.managers.scheduler.gates import OWN
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.tiers.loads import LoadGate
from jackfield.managers.scheduler.tiers.runner import TierRunner
from jackfield.managers.scheduler.tiers.writes import TierWrites
from jackfield.managers.scheduler.watchers import Ledger

GATE_NAME = f"{OWN}load"
LAST_COPIES = 5.0
"""Seconds that the end of a run waits for copies that are under way."""


@dataclass(frozen=True, kw_only=True)
class TierSetup:
    """What the scheduler needs to make its tiers.

    tiers          ("kv_tier.instance", tier) in the order in which they are asked
    fingerprint    of the model and the mover's layout: part of every block's name
    block_tokens   whole pages
    threaded       whether tiers work on threads of their own; not on a virtual clock
    """

    mover: KVMover
    tiers: Sequence[tuple[str, KVTier]]
    fingerprint: bytes
    block_tokens: int
    threaded: bool


class KVTiers:
    def __init__(self, setup: TierSetup, memory: KVMemory, ledger: Ledger, promised: Callable[[], int]) -> None:
        block, mover = setup.block_tokens, setup.mover
        if block % memory.page_size:
            raise ValueError(f"blocks of {block} tokens are no whole pages of {memory.page_size}")
        self._mover = mover
        self._runners = [
            TierRunner(name, tier, ledger, block_bytes=block * mover.bytes_per_slot, threaded=setup.threaded)
            for name, tier in setup.tiers
        ]
        if any(tier.rule.write == "back" for _, tier in setup.tiers):
            memory.evict_at_least = block
        self._writes = TierWrites(mover, self._runners, setup.fingerprint, block)
        self.gate = LoadGate(
            mover,
            self._runners,
            memory,
            fingerprint=setup.fingerprint,
            block=block,
            count=self._writes.count,
            promised=promised,
        )

    def committed(self, key: CacheKey, slots: NDArray[np.int32]) -> None:
        self._writes.committed(key, slots)

    def evicted(self, runs: Sequence[Evicted]) -> None:
        self._writes.evicted(runs)

    def clear(self) -> None:
        """The cache is flushed. Only with no load under way."""
        self._writes.forget()
        for runner in self._runners:
            runner.clear()

    def kept(self, uid: int, cached: int) -> dict[str, int]:
        return self.gate.kept(uid, cached)

    def poll(self) -> int:
        """Copies that have ended go on their way. Returns how many loads have ended."""
        ended = self._collect()
        for runner in self._runners:
            runner.check()
        return ended

    def _collect(self) -> int:
        ended = 0
        for moved in self._mover.poll() if self.pending else ():
            if not self._writes.moved(moved) and self.gate.moved(moved):
                ended += 1
        return ended

    @property
    def pending(self) -> int:
        """Copies under way."""
        return self._writes.pending + self.gate.pending

    def wait(self, timeout: float | None) -> None:
        """Until a copy has ended, or `timeout`; at once if none is under way."""
        if self.pending:
            self._mover.wait(timeout)

    def numbers(self) -> dict[str, dict[str, int]]:
        """Tier instance -> its numbers; and, under "", those of loads and copies."""
        numbers = {runner.name.partition(".")[2]: runner.numbers() for runner in self._runners}
        copies = {"copies_failed": self._writes.failed, "copies_dropped": self._writes.dropped}
        return {**numbers, "": {**vars(self.gate.counts), **copies}}

    def close(self) -> None:
        """What is under way to the tiers still gets there, as far as that goes in time."""
        while before := self.pending:
            self._mover.wait(LAST_COPIES)
            self._collect()
            if self.pending == before:
                break
        for runner in self._runners:
            runner.close()
