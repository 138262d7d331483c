"""A threaded worker's copies: in the order of its calls, told on the caller's thread, and failing alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jackfield.hookspecs import KVMover, Moved
from jackfield.managers.scheduler.threaded_worker import ThreadedWorker
from jackfield.testing.scheduler_harness import SchedulerHarness

SLOTS = np.array([1, 2], dtype=np.int32)


class Slow(KVMover):
    """Its tickets are not those of the caller, and a copy ends some polls after it began."""

    bytes_per_slot = 1
    layout = "slow"

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.open: list[list[Any]] = []
        self.tickets = 100

    def read(self, slots: Any) -> int:
        if slots[0] == 13:
            raise ValueError("no such slot")
        self.log.append("read")
        return self._begin(np.zeros((len(slots), 1), dtype=np.uint8))

    def write(self, slots: Any, data: Any) -> int:
        self.log.append("write")
        return self._begin(None)

    def _begin(self, data: Any) -> int:
        self.tickets += 1
        self.open.append([3, Moved(ticket=self.tickets, data=data)])
        return self.tickets

    def poll(self) -> list[Moved]:
        for entry in self.open:
            entry[0] -= 1
        ended = [entry[1] for entry in self.open if entry[0] <= 0]
        self.open = [entry for entry in self.open if entry[0] > 0]
        return ended

    def wait(self, timeout: float | None) -> None:
        raise AssertionError("nobody waits on the worker's thread")


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def worker(log: list[str]) -> Any:
    inner: Any = SchedulerHarness().worker
    inner.mover = lambda: Slow(log)
    threaded = ThreadedWorker(inner)
    yield threaded
    threaded.close()


def collect(mover: KVMover, count: int) -> list[Moved]:
    ended: list[Moved] = []
    while len(ended) < count:
        ended += mover.poll()
    return ended


def test_copies_are_made_in_order_and_told_with_our_tickets(worker: ThreadedWorker, log: list[str]) -> None:
    mover = worker.mover()
    assert mover is not None
    assert (mover.bytes_per_slot, mover.layout) == (1, "slow")
    first, second = mover.read(SLOTS), mover.write(SLOTS, np.zeros((2, 1), dtype=np.uint8))
    ended = collect(mover, 2)
    assert log == ["read", "write"]
    assert [moved.ticket for moved in ended] == [first, second]
    assert ended[0].data is not None
    assert ended[1].data is None
    mover.wait(None)  # nothing is under way: at once
    assert mover.poll() == []


def test_a_copy_that_raises_fails_alone(worker: ThreadedWorker) -> None:
    mover = worker.mover()
    assert mover is not None
    bad, good = mover.read(np.array([13], dtype=np.int32)), mover.read(SLOTS)
    by_ticket = {moved.ticket: moved for moved in collect(mover, 2)}
    assert "no such slot" in by_ticket[bad].error
    assert by_ticket[good].error == ""


def test_a_worker_without_copies_says_so() -> None:
    inner: Any = SchedulerHarness().worker
    threaded = ThreadedWorker(inner)
    assert threaded.mover() is None
    threaded.close()
