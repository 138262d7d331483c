"""When one of FlashInfer's wrappers may be planned again.

`plan` writes what it found into pinned host memory of the wrapper and enqueues a copy to the device. Until that copy has run,
which the device may do much later, another plan would change what is copied: FlashInfer does not guard against it. So each plan
leaves a mark behind its copy, and a wrapper whose mark was not passed is left alone; another one is made, and nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch

from jackfield_attention_flashinfer.pages import DevicePages

_MOST_IDLE = 16
"""Wrappers that are kept for later. Each has 8 MiB on the device and as much pinned memory."""


class Mark:
    """A place in the device's queue."""

    def __init__(self, device: torch.device) -> None:
        self._event: Any = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def set(self) -> None:
        """Here, behind all that was enqueued so far."""
        if self._event is not None:
            self._event.record()

    def passed(self) -> bool:
        """Whether the device came by. On a CPU everything is done at once."""
        return self._event is None or bool(self._event.query())


@dataclass(kw_only=True)
class Buffers:
    """Device memory that belongs to a wrapper which is told so when it is made. All int32, but for mask: uint8."""

    q_starts: torch.Tensor
    pages: DevicePages
    mask: torch.Tensor | None
    mask_starts: torch.Tensor | None


@dataclass(kw_only=True)
class Slot:
    """A wrapper, what it was made for, and the mark of its last plan."""

    key: Hashable
    wrapper: Any
    mark: Mark
    buffers: Buffers | None = None
    pages: DevicePages | None = field(default=None, repr=False)


class Pool:
    """Wrappers of one backend that no living plan holds."""

    def __init__(self) -> None:
        self._idle: list[Slot] = []

    def take(self, key: Hashable, make: Callable[[], Slot]) -> Lease:
        """A wrapper that was made for `key` and may be planned now; a new one if there is none."""
        for i, slot in enumerate(self._idle):
            if slot.key == key and slot.mark.passed():
                return Lease(self, self._idle.pop(i))
        return Lease(self, make())

    def give_back(self, slot: Slot) -> None:
        """Its plan is gone. The one that was left alone longest goes if there are too many."""
        self._idle.append(slot)
        del self._idle[:-_MOST_IDLE]


class Lease:
    """A plan's hold on a wrapper; it ends with this object."""

    def __init__(self, pool: Pool, slot: Slot) -> None:
        self._pool = pool
        self.slot = slot

    def __del__(self) -> None:
        self._pool.give_back(self.slot)
