"""Slots of tensors that hold one line for each row that wants one: few rows do, and a line may be as long as the vocabulary."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.layers.to_device import to_device


class RowSlots:
    """Which slot a row has. Slots are given out from 0, the freed ones first, so that they stay few."""

    def __init__(self, max_rows: int) -> None:
        self._slot: NDArray[np.int64] = np.full(max_rows, -1, dtype=np.int64)
        self._free: list[int] = []
        self._used = 0

    def take(self, row: int) -> int:
        """A slot for a row that has none."""
        if not self._free:
            self._free.append(self._used)
            self._used += 1
        slot = self._free.pop()
        self._slot[row] = slot
        return slot

    def free(self, rows: NDArray[np.int32]) -> None:
        self._free.extend(self._slot[rows].tolist())
        self._slot[rows] = -1

    def of(self, rows: NDArray[np.int32], device: str) -> torch.Tensor:
        """int64 [n] on the device."""
        return to_device(self._slot[rows], device)


def with_room(lines: torch.Tensor, slot: int) -> torch.Tensor:
    """`lines` [slots, ...], or a copy of at least twice as many, so that `slot` is one of them."""
    have = lines.shape[0]
    if slot < have:
        return lines
    grown = torch.zeros((max(2 * have, slot + 1), *lines.shape[1:]), dtype=lines.dtype, device=lines.device)
    grown[:have] = lines
    return grown
