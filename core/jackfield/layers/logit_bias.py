"""A request's own bias, and the end tokens that it does not want yet, as logits processors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import LogitsProcessor, LogitsRow, RowOpen
from jackfield.layers.to_device import to_device


class LogitBias(LogitsProcessor):
    """Adds to the logits of some ids. `LogitsRow.params` is the `RowOpen`."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._of: dict[int, tuple[NDArray[np.int64], NDArray[np.float32]]] = {}

    @staticmethod
    def wanted(opened: RowOpen) -> RowOpen | None:
        return opened if len(opened.bias_ids) else None

    def opened(self, rows: Sequence[LogitsRow]) -> None:
        for row in rows:
            self._of[row.row] = (row.params.bias_ids.astype(np.int64), row.params.bias_values)

    def closed(self, rows: NDArray[np.int32]) -> None:
        for row in rows.tolist():
            del self._of[row]

    def apply(self, logits: torch.Tensor, rows: NDArray[np.int32], positions: NDArray[np.int64]) -> None:
        ids, values = zip(*(self._of[row] for row in rows.tolist()), strict=True)
        added = to_device(np.concatenate(values), self._device)
        logits.index_put_(_places(ids, self._device), added, accumulate=True)


class MinNewTokens(LogitsProcessor):
    """Forbids the ids that would end a request while it has fewer outputs than it asked for. `LogitsRow.params` is the
    `RowOpen`."""

    def __init__(self, max_rows: int, device: str) -> None:
        self._device = device
        self._missing: NDArray[np.int64] = np.zeros(max_rows, dtype=np.int64)
        self._ends: dict[int, NDArray[np.int64]] = {}

    @staticmethod
    def wanted(opened: RowOpen) -> RowOpen | None:
        return opened if opened.min_new_tokens > opened.outputs and len(opened.end_ids) else None

    def opened(self, rows: Sequence[LogitsRow]) -> None:
        for row in rows:
            self._missing[row.row] = row.params.min_new_tokens - row.outputs
            self._ends[row.row] = row.params.end_ids.astype(np.int64)

    def closed(self, rows: NDArray[np.int32]) -> None:
        for row in rows.tolist():
            del self._ends[row]

    def tokens(self, rows: NDArray[np.int32], ids: torch.Tensor) -> None:
        np.subtract.at(self._missing, rows, 1)

    def apply(self, logits: torch.Tensor, rows: NDArray[np.int32], positions: NDArray[np.int64]) -> None:
        none = np.empty(0, dtype=np.int64)
        ids = [self._ends[row] if self._missing[row] > 0 else none for row in rows.tolist()]
        never = logits.new_full((), -torch.inf)  # a number would be copied to the device, and waited for
        logits.index_put_(_places(ids, self._device), never)


def _places(ids: Sequence[NDArray[np.int64]], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and column indices, int64 [k] each, of ragged ids, one array a row."""
    rows = np.repeat(np.arange(len(ids)), [len(of_row) for of_row in ids])
    return to_device(rows, device), to_device(np.concatenate(ids), device)
