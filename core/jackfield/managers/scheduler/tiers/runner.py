"""One tier behind a bounded queue and a guard: its I/O runs on a thread of its own, and its errors are misses.

Knows blocks and keys, no request and no slot.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jackfield.hookspecs import FaultScope, KVTier
from jackfield.managers.scheduler.watchers import Ledger
from jackfield.stack.errors import PLUGIN_ERRORS

QUEUE_BYTES = 256 * 2**20
"""Bytes of blocks that may wait to be written to one tier; what comes beyond is dropped."""
CLOSE_SECONDS = 10.0
"""How long the end of a run waits for a tier to write what is queued."""


class BadTierAnswer(Exception):
    """A tier returned something that its contract does not allow."""


@dataclass
class TierCounts:
    """Blocks found, not found, written, dropped because the queue was full; calls that failed; bytes."""

    hits: int = 0
    misses: int = 0
    writes: int = 0
    dropped: int = 0
    errors: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class TierRunner:
    """name: "kv_tier.instance", its key in the ledger. threaded: False does each job at once, in the caller's thread."""

    def __init__(
        self,
        name: str,
        tier: KVTier,
        ledger: Ledger,
        *,
        block_bytes: int,
        threaded: bool,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self.name = name
        self.rule = tier.rule
        self.counts = TierCounts()
        self._tier = tier
        self._ledger = ledger
        self._block_bytes = block_bytes
        self._queue_bytes = queue_bytes
        self._jobs: deque[Callable[[], None]] = deque()
        self._queued = 0
        self._writing: set[bytes] = set()
        self._clears = 0
        self._off = False
        self._stop: BaseException | None = None
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"jackfield-{name}", daemon=True) if threaded else None
        if self._thread is not None:
            self._thread.start()

    # ---- the scheduler's thread

    def has(self, key: bytes) -> bool:
        if self._off or self._clears:
            return False
        try:
            return bool(self._tier.has(key))
        except PLUGIN_ERRORS as error:
            self._fault(error)
            self.check()
            return False

    def wants(self, key: bytes) -> bool:
        """Whether this block should be written here."""
        return not self._off and key not in self._writing and not self.has(key)

    def get(self, keys: Sequence[bytes], done: Callable[[list[bytes]], None]) -> None:
        """Fetch blocks; `done` gets those in front of the first that is not there, on whatever thread."""
        if self._off:
            done([])
            return
        self._submit(lambda: done(self._fetch(keys)))

    def put(self, key: bytes, block: bytes) -> None:
        if self._off:
            return
        with self._changed:
            if self._thread is not None and self._queued + len(block) > self._queue_bytes:
                self.counts.dropped += 1
                return
            self._queued += len(block)
            self._writing.add(key)
        self._submit(lambda: self._store(key, block))

    def clear(self) -> None:
        """From now on it holds nothing, though it may take its time to forget it."""
        with self._changed:
            self._clears += 1
        self._submit(self._clear)

    def check(self) -> None:
        """Raises what the ledger raised on the tier's thread (`--plugin-faults raise`)."""
        if self._stop is not None:
            raise self._stop

    def numbers(self) -> dict[str, int]:
        counts = dict(vars(self.counts))
        try:
            use = self._tier.use()
            return {**counts, "blocks": use.blocks, "bytes": use.bytes, "capacity": use.capacity}
        except PLUGIN_ERRORS as error:
            self._fault(error)
            return {**counts, "blocks": 0, "bytes": 0, "capacity": 0}

    def close(self) -> None:
        """Writes what is queued, as far as that goes in time."""
        if self._closing:
            return
        self._submit(self._close)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    # ---- the tier's thread

    def _submit(self, job: Callable[[], None]) -> None:
        if self._thread is None:
            job()
            return
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closing)
                if not self._jobs:
                    return
                job = self._jobs.popleft()
            job()

    def _fetch(self, keys: Sequence[bytes]) -> list[bytes]:
        blocks: list[bytes] = []
        for key in keys:
            try:
                block = self._tier.get(key)
                if block is not None and (not isinstance(block, bytes) or len(block) != self._block_bytes):
                    raise BadTierAnswer(f"get returned something else than None or {self._block_bytes} bytes")
            except PLUGIN_ERRORS as error:
                self._fault(error)
                block = None
            if block is None:
                self.counts.misses += 1
                break
            self.counts.hits += 1
            self.counts.bytes_read += len(block)
            blocks.append(block)
        return blocks

    def _store(self, key: bytes, block: bytes) -> None:
        try:
            self._tier.put(key, block)
            self.counts.writes += 1
            self.counts.bytes_written += len(block)
        except PLUGIN_ERRORS as error:
            self._fault(error)
        with self._changed:
            self._queued -= len(block)
            self._writing.discard(key)

    def _clear(self) -> None:
        try:
            self._tier.clear()
        except PLUGIN_ERRORS as error:
            self._fault(error)
            self._off = True  # it may still hold what was to be forgotten
        with self._changed:
            self._clears -= 1

    def _close(self) -> None:
        try:
            self._tier.close()
        except PLUGIN_ERRORS as error:
            self._fault(error)

    def _fault(self, error: BaseException) -> None:
        self.counts.errors += 1
        try:
            self._ledger.record(self.name, FaultScope.COUNT, error)
        except BaseException as stop:
            self._stop = stop
        self._off |= self._ledger.quarantined(self.name)
