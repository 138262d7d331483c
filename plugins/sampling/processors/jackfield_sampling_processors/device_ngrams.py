"""N-grams where the logits are: the tokens of each row lie on the device, and nothing that is found of them comes back.

The host knows how many tokens a row has, but not which, as those that were drawn last may not have been drawn yet.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import LogitsProcessor, LogitsRow
from jackfield.layers.row_slots import RowSlots, with_room
from jackfield.layers.to_device import to_device

_AT_ONCE = 1 << 24
"""Tokens that are compared in one operation: a byte each for a moment."""


class DeviceHistories:
    """Row -> its tokens, prompt and outputs. Four bytes a token, for as many rows as ever asked at once, each as long as the
    longest."""

    def __init__(self, max_rows: int, device: str) -> None:
        self._device = device
        self._slots = RowSlots(max_rows)
        self._slot: dict[int, int] = {}
        self._lengths: NDArray[np.int64] = np.zeros(max_rows, dtype=np.int64)
        self._tokens = torch.zeros((0, 0), dtype=torch.int32, device=device)

    def open(self, row: int, history: NDArray[np.int32]) -> None:
        slot = self._slot[row] = self._slots.take(row)
        self._tokens = with_room(self._tokens, slot)
        self._lengths[row] = len(history)
        self._reach(len(history))
        self._tokens[slot, : len(history)] = to_device(history.astype(np.int32), self._device)

    def close(self, rows: NDArray[np.int32]) -> None:
        self._slots.free(rows)
        for row in rows.tolist():
            del self._slot[row]

    def append(self, rows: NDArray[np.int32], ids: torch.Tensor) -> None:
        """ids int64 [k] on the device. A row may come several times."""
        places = np.empty(len(rows), dtype=np.int64)
        for i, row in enumerate(rows.tolist()):
            places[i] = self._lengths[row]
            self._lengths[row] += 1
        self._reach(int(places.max(initial=-1)) + 1)
        at = self._slots.of(rows, self._device), to_device(places, self._device)
        self._tokens.index_put_(at, ids.to(torch.int32))

    def of(self, row: int) -> torch.Tensor:
        """int32 [n], a view."""
        return self._tokens[self._slot[row], : int(self._lengths[row])]

    def _reach(self, length: int) -> None:
        have = self._tokens.shape[1]
        if length > have:
            grown = self._tokens.new_zeros((self._tokens.shape[0], max(2 * have, length + 16)))
            grown[:, :have] = self._tokens
            self._tokens = grown


class DeviceNgrams(LogitsProcessor):
    """`NoRepeatNgram` on a device that runs beside the host; its parameters have `ngram_size`."""

    def __init__(self, max_rows: int, device: str) -> None:
        self._histories = DeviceHistories(max_rows, device)
        self._sizes: dict[int, int] = {}

    def opened(self, rows: Sequence[LogitsRow]) -> None:
        for row in rows:
            self._sizes[row.row] = row.params.ngram_size
            self._histories.open(row.row, row.history)

    def closed(self, rows: NDArray[np.int32]) -> None:
        self._histories.close(rows)
        for row in rows.tolist():
            del self._sizes[row]

    def tokens(self, rows: NDArray[np.int32], ids: torch.Tensor) -> None:
        self._histories.append(rows, ids)

    def apply(self, logits: torch.Tensor, rows: NDArray[np.int32], positions: NDArray[np.int64]) -> None:
        for i, row in enumerate(rows.tolist()):
            forbid(logits[i], self._histories.of(row), self._sizes[row])


def forbid(logits: torch.Tensor, history: torch.Tensor, size: int) -> None:
    """Minus infinity in [vocab], in place, for the ids that would complete an n-gram of `size` that `history` [n] holds."""
    if len(history) < size:
        return
    begun = history[len(history) - size + 1 :]
    all_of, step = history.unfold(0, size, 1), max(1, _AT_ONCE // size)
    for start in range(0, len(all_of), step):
        ngrams = all_of[start : start + step]
        again = (ngrams[:, :-1] == begun).all(dim=1)
        # The least of a logit and infinity is the logit: so the ids need not be picked out, whose number nobody here knows.
        bound = logits.new_full(again.shape, torch.inf).masked_fill_(again, -torch.inf)
        logits.scatter_reduce_(0, ngrams[:, -1].long(), bound, "amin")
