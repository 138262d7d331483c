"""The copies of a worker that runs on a thread of its own: made there, in the order of the calls, and told here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import KVMover, Moved
from jackfield.stack.runtime.faults import named


class ThreadedMover(KVMover):
    """call: has a function called on the worker's thread, behind all calls before it. Tickets are this object's own."""

    def __init__(self, mover: KVMover, call: Callable[[Callable[[], Any]], Any]) -> None:
        self.bytes_per_slot = mover.bytes_per_slot
        self.layout = mover.layout
        self._mover = mover
        self._call = call
        self._tickets = 0
        self._open = 0
        self._names: dict[int, int] = {}  # the mover's ticket -> ours; the thread's alone
        self._ended: list[Moved] = []
        self._asking = False
        self._changed = threading.Condition()

    def read(self, slots: NDArray[np.int32]) -> int:
        return self._start(lambda: self._mover.read(slots))

    def write(self, slots: NDArray[np.int32], data: NDArray[np.uint8]) -> int:
        return self._start(lambda: self._mover.write(slots, data))

    def poll(self) -> list[Moved]:
        with self._changed:
            ended, self._ended = self._ended, []
            self._open -= len(ended)
            ask = self._open > 0 and not self._asking
            self._asking |= ask
        if ask:  # for movers whose copies go on after the call
            self._call(self._ask)
        return ended

    def wait(self, timeout: float | None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or not self._open, timeout)

    def _start(self, copy: Callable[[], int]) -> int:
        self._tickets += 1
        ticket = self._tickets
        self._open += 1
        self._call(lambda: self._copy(ticket, copy))
        return ticket

    # on the worker's thread

    def _copy(self, ticket: int, copy: Callable[[], int]) -> None:
        try:
            self._names[copy()] = ticket
        except Exception as error:  # a copy that fails is that copy's business; the worker goes on
            self._tell([Moved(ticket=ticket, error=named(error))])
            return
        self._collect()

    def _ask(self) -> None:
        self._asking = False
        self._collect()

    def _collect(self) -> None:
        self._tell(
            [
                Moved(ticket=self._names.pop(moved.ticket), data=moved.data, error=moved.error)
                for moved in self._mover.poll()
            ]
        )

    def _tell(self, ended: list[Moved]) -> None:
        with self._changed:
            self._ended += ended
            self._changed.notify_all()
