"""Copies of simulated KV: the prefix hashes of the slots, so that a wrong copy is found like any other wrong slot."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import KVMover, Moved
from jackfield_worker_simulated.errors import SimulationError
from jackfield_worker_simulated.kv_ledger import KVLedger
from jackfield_worker_simulated.timeline import Timeline


class SimulatedMover(KVMover):
    """Copies run one behind the other, beside the steps. A write lands when its time has passed, so that a step which
    reads the slots before that is refused. kv: None if slots are not looked at (option verify: off)."""

    bytes_per_slot = 8
    layout = "simulated/prefix-hash"

    def __init__(self, kv: KVLedger | None, timeline: Timeline, seconds_per_slot: float) -> None:
        self._kv = kv
        self._timeline = timeline
        self._seconds = seconds_per_slot
        self._tickets = 0
        self._under_way: deque[tuple[float, Moved, NDArray[np.int32] | None, NDArray[np.uint64] | None]] = deque()

    def read(self, slots: NDArray[np.int32]) -> int:
        self._check(slots)
        content = np.zeros(len(slots), dtype=np.uint64) if self._kv is None else self._kv.content_of(slots)
        self._tickets += 1
        data = content.view(np.uint8).reshape(-1, self.bytes_per_slot)
        self._book(len(slots), Moved(ticket=self._tickets, data=data), None, None)
        return self._tickets

    def write(self, slots: NDArray[np.int32], data: NDArray[np.uint8]) -> int:
        self._check(slots)
        if data.dtype != np.uint8 or data.shape != (len(slots), self.bytes_per_slot):
            raise SimulationError(f"{data.dtype} {data.shape} is written into {len(slots)} slots")
        if len(np.unique(slots)) != len(slots):
            raise SimulationError("a copy names a slot twice")
        content = np.ascontiguousarray(data).view(np.uint64)[:, 0]
        self._tickets += 1
        if self._kv is not None:
            self._kv.blank(slots)
        self._book(len(slots), Moved(ticket=self._tickets), slots, content)
        return self._tickets

    def poll(self) -> list[Moved]:
        ended = []
        while self._under_way and self._timeline.passed(self._under_way[0][0]):
            _, moved, slots, content = self._under_way.popleft()
            if self._kv is not None and slots is not None and content is not None:
                self._kv.fill(slots, content)
            ended.append(moved)
        return ended

    def wait(self, timeout: float | None) -> None:
        if not self._under_way:
            return
        try:
            self._timeline.wait(self._under_way[0][0], timeout)
        except TimeoutError:
            return

    def _book(
        self, count: int, moved: Moved, slots: NDArray[np.int32] | None, content: NDArray[np.uint64] | None
    ) -> None:
        self._under_way.append((self._timeline.book(self._seconds * count), moved, slots, content))

    def _check(self, slots: NDArray[np.int32]) -> None:
        if slots.dtype != np.int32 or slots.ndim != 1 or not len(slots):
            raise SimulationError(f"a copy names its slots as {slots.dtype} {slots.shape}")
