"""The rows of a batch whose prompt ends in it, and which text each new token belongs to. Knows no model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import ModelWorkerBatch
from jackfield.model_executor.device import Device


@dataclass(frozen=True, kw_only=True)
class PooledRows:
    """rows         int64 [m], NumPy: batch indices of the rows that are pooled
    tokens       int64: where their new tokens stand in the token dimension; None: they are all there are
    starts       int64 [m + 1]: where each one's begin among these
    token_types  int64 [total new], of all rows; None: all are 0
    """

    rows: NDArray[np.int64]
    tokens: torch.Tensor | None
    starts: torch.Tensor
    token_types: torch.Tensor | None


class TokenTypes:
    """The token types of the open rows that have any."""

    def __init__(self) -> None:
        self._of: dict[int, NDArray[np.uint8]] = {}

    def apply(self, batch: ModelWorkerBatch) -> None:
        for row in batch.closed.tolist():
            self._of.pop(row, None)
        for opened in batch.opened:
            if opened.token_types.size:
                self._of[opened.row] = opened.token_types

    def of(self, batch: ModelWorkerBatch) -> NDArray[np.int64] | None:
        """int64 [total new]; None: all are 0."""
        if not self._of or not any(row in self._of for row in batch.rows.tolist()):
            return None
        parts = []
        for row, start, count in zip(
            batch.rows.tolist(), batch.computed.tolist(), batch.new_tokens.tolist(), strict=True
        ):
            types = self._of.get(row)
            parts.append(np.zeros(count, dtype=np.int64) if types is None else types[start : start + count])
        return np.concatenate(parts).astype(np.int64)


def pooled_rows(batch: ModelWorkerBatch, types: TokenTypes, device: Device) -> PooledRows:
    """Of a batch with `pool`, and at least one row."""
    assert batch.pool is not None
    rows = np.flatnonzero(batch.pool).astype(np.int64)
    lengths = batch.new_tokens[rows].astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = None
    if len(rows) < len(batch.rows):
        tokens = device.upload(np.flatnonzero(np.repeat(batch.pool, batch.new_tokens)), np.int64)
    found = types.of(batch)
    return PooledRows(
        rows=rows,
        tokens=tokens,
        starts=device.upload(starts, np.int64),
        token_types=None if found is None else device.upload(found, np.int64),
    )


def last_states(hidden: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """The hidden state of each row's last token, [m, hidden]; arguments as of `Model.pool`."""
    return hidden.index_select(0, starts[1:] - 1)
