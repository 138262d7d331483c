"""Copies of KV between the worker's memory and the host: asked for with slots, answered with tickets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A copy that has ended.

    data    uint8 [n, bytes_per_slot] of a read, in the order of its slots; None for a write, or if it failed
    error   why it failed; empty: it did not. What a failed write's slots hold is undefined
    """

    ticket: int
    data: NDArray[np.uint8] | None = None
    error: str = ""


class KVMover(ABC):
    """A worker's copies. Used by the thread that calls the worker, and ordered with its launches: a read sees what was
    launched before it and nothing of what is launched after it, so its slots may be reused at once; a write is seen by
    what is launched after its ticket has ended, and its slots may not be used by anybody until then.

    bytes_per_slot   of all layers and tensors together
    layout           two movers whose texts are equal understand each other's bytes
    """

    bytes_per_slot: int
    layout: str

    @abstractmethod
    def read(self, slots: NDArray[np.int32]) -> int:
        """Copy the KV of `slots` (int32 [n], n >= 1) to the host. Returns the ticket, a number never used before."""

    @abstractmethod
    def write(self, slots: NDArray[np.int32], data: NDArray[np.uint8]) -> int:
        """Fill `slots` (int32 [n], distinct) with `data` (uint8 [n, bytes_per_slot], as a read gave it; unchanged until
        the ticket has ended). Returns the ticket."""

    @abstractmethod
    def poll(self) -> list[Moved]:
        """The copies that have ended since the last call, each told once. Does not block."""

    @abstractmethod
    def wait(self, timeout: float | None) -> None:
        """Until `poll` has something to tell, or `timeout` seconds; at once if no copy is under way. May return early."""
