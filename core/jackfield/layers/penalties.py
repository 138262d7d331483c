"""Penalties of tokens that were there before, as logits processors. Each row's result depends on its own tokens alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import LogitsProcessor, LogitsRow, RowOpen
from jackfield.layers.row_slots import RowSlots, with_room
from jackfield.layers.to_device import to_device


class AdditivePenalties(LogitsProcessor):
    """Frequency and presence, as in OpenAI's API: `logit - frequency * count - presence * (count > 0)`, where count is how
    often the token stands among the outputs; prompts do not count. `LogitsRow.params` is the `RowOpen`.

    Memory: four bytes times the vocabulary for each row that asks.
    """

    def __init__(self, max_rows: int, vocab_size: int, device: str) -> None:
        self._device = device
        self._slots = RowSlots(max_rows)
        self._frequency: NDArray[np.float32] = np.zeros(max_rows, dtype=np.float32)
        self._presence: NDArray[np.float32] = np.zeros(max_rows, dtype=np.float32)
        self._counts = torch.zeros((0, vocab_size), dtype=torch.int32, device=device)

    @staticmethod
    def wanted(opened: RowOpen) -> RowOpen | None:
        return opened if opened.frequency_penalty or opened.presence_penalty else None

    def opened(self, rows: Sequence[LogitsRow]) -> None:
        for row in rows:
            params: RowOpen = row.params
            self._frequency[row.row] = params.frequency_penalty
            self._presence[row.row] = params.presence_penalty
            slot = self._slots.take(row.row)
            self._counts = with_room(self._counts, slot)
            ids, counts = np.unique(row.history[len(row.history) - row.outputs :], return_counts=True)
            line = self._counts[slot].zero_()
            line[_put(ids.astype(np.int64), self._device)] = _put(counts.astype(np.int32), self._device)

    def closed(self, rows: NDArray[np.int32]) -> None:
        self._slots.free(rows)

    def tokens(self, rows: NDArray[np.int32], ids: torch.Tensor) -> None:
        one = torch.ones(1, dtype=torch.int32, device=self._device).expand(len(rows))
        self._counts.index_put_((self._slots.of(rows, self._device), ids), one, accumulate=True)

    def apply(self, logits: torch.Tensor, rows: NDArray[np.int32], positions: NDArray[np.int64]) -> None:
        counts = self._counts[self._slots.of(rows, self._device)]
        logits.sub_(counts * _put(self._frequency[rows], self._device)[:, None])
        logits.sub_((counts > 0) * _put(self._presence[rows], self._device)[:, None])


class RepetitionPenalty(LogitsProcessor):
    """As in Hugging Face's transformers: of every token of prompt and outputs, a negative logit is multiplied by the penalty
    and another one divided. `LogitsRow.params` is the `RowOpen`.

    Memory: one byte times the vocabulary for each row that asks.
    """

    def __init__(self, max_rows: int, vocab_size: int, device: str) -> None:
        self._device = device
        self._slots = RowSlots(max_rows)
        self._penalty: NDArray[np.float32] = np.ones(max_rows, dtype=np.float32)
        self._seen = torch.zeros((0, vocab_size), dtype=torch.bool, device=device)

    @staticmethod
    def wanted(opened: RowOpen) -> RowOpen | None:
        return opened if opened.repetition_penalty != 1 else None

    def opened(self, rows: Sequence[LogitsRow]) -> None:
        for row in rows:
            self._penalty[row.row] = row.params.repetition_penalty
            slot = self._slots.take(row.row)
            self._seen = with_room(self._seen, slot)
            line = self._seen[slot].zero_()
            line.index_fill_(0, _put(row.history.astype(np.int64), self._device), True)

    def closed(self, rows: NDArray[np.int32]) -> None:
        self._slots.free(rows)

    def tokens(self, rows: NDArray[np.int32], ids: torch.Tensor) -> None:
        seen = torch.ones((), dtype=torch.bool, device=self._device)  # a number would be copied there, and waited for
        self._seen.index_put_((self._slots.of(rows, self._device), ids), seen)

    def apply(self, logits: torch.Tensor, rows: NDArray[np.int32], positions: NDArray[np.int64]) -> None:
        seen = self._seen[self._slots.of(rows, self._device)]
        penalty = _put(self._penalty[rows], self._device)[:, None]
        scaled = torch.where(logits < 0, logits * penalty, logits / penalty)
        logits.copy_(torch.where(seen, scaled, logits))


def _put(column: NDArray[np.generic], device: str) -> torch.Tensor:
    return to_device(column, device)
