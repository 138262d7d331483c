"""The tokens of each row that asked, growing as they are drawn, and what every processor that reads them has in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import LogitsProcessor, LogitsRow

if TYPE_CHECKING:
    import torch

Parameters = TypeVar("Parameters")


class Histories:
    """Row -> its tokens, prompt and outputs."""

    def __init__(self) -> None:
        self._tokens: dict[int, NDArray[np.int32]] = {}
        self._length: dict[int, int] = {}

    def open(self, row: int, history: NDArray[np.int32]) -> None:
        self._tokens[row] = history
        self._length[row] = len(history)

    def close(self, rows: Iterable[int]) -> None:
        for row in rows:
            del self._tokens[row], self._length[row]

    def append(self, rows: Iterable[int], ids: Iterable[int]) -> None:
        """A row may come several times."""
        for row, token in zip(rows, ids, strict=True):
            tokens, length = self._tokens[row], self._length[row]
            if length == len(tokens):
                grown = np.empty(2 * length + 16, dtype=np.int32)
                grown[:length] = tokens
                self._tokens[row] = tokens = grown
            tokens[length] = token
            self._length[row] = length + 1

    def of(self, row: int) -> NDArray[np.int32]:
        """int32 [n], good until the row's next token."""
        return self._tokens[row][: self._length[row]]


class HistoryProcessor(LogitsProcessor, Generic[Parameters]):
    """Keeps each open row's parameters and tokens; `apply` is the processor's own."""

    def __init__(self) -> None:
        self._histories = Histories()
        self._params: dict[int, Parameters] = {}

    def opened(self, rows: Sequence[LogitsRow]) -> None:
        for row in rows:
            self._params[row.row] = row.params
            self._histories.open(row.row, row.history)

    def closed(self, rows: NDArray[np.int32]) -> None:
        self._histories.close(rows.tolist())
        for row in rows.tolist():
            del self._params[row]

    def tokens(self, rows: NDArray[np.int32], ids: torch.Tensor) -> None:
        self._histories.append(rows.tolist(), ids.tolist())
