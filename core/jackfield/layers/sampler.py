"""Sampling parameters by row, and the random stream of each draw."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import RowOpen, SamplingGroups, SamplingRows
from jackfield.layers.noise import streams
from jackfield.layers.to_device import to_device

GREEDY_BELOW = 1e-5
_HOTTEST = float(np.finfo(np.float32).max)
"""Temperatures under this are greedy: the draw could differ from the arg max only among all but equal logits."""


class SamplingTable:
    """Columns of sampling parameters on the host, indexed by row of the request-to-token table.

    max_rows     rows of that table
    vocab_size   what `top_k` off, or larger, means
    device       where `rows` puts its tensors
    """

    def __init__(self, max_rows: int, vocab_size: int, *, device: str) -> None:
        self.vocab_size = vocab_size
        self.device = device
        self.open_rows: NDArray[np.bool_] = np.zeros(max_rows, dtype=np.bool_)
        self.temperature: NDArray[np.float32] = np.zeros(max_rows, dtype=np.float32)
        self.top_k: NDArray[np.int32] = np.full(max_rows, vocab_size, dtype=np.int32)
        self.top_p: NDArray[np.float32] = np.ones(max_rows, dtype=np.float32)
        self.min_p: NDArray[np.float32] = np.zeros(max_rows, dtype=np.float32)
        self.seed: NDArray[np.uint64] = np.zeros(max_rows, dtype=np.uint64)
        # Most steps sample the rows of the step before: what `rows` gave then, until a row is opened.
        self._last: SamplingRows | None = None
        self._last_key = b""

    def open(self, opened: RowOpen) -> None:
        """Take a row's parameters. ValueError if the row is open already."""
        row = opened.row
        if self.open_rows[row]:
            raise ValueError(f"row {row} was opened while it was open")
        self.open_rows[row] = True
        self._last = None
        # Beyond float32 it would be infinite, and a barred token's -inf divided by it no number.
        self.temperature[row] = 0.0 if opened.temperature < GREEDY_BELOW else min(opened.temperature, _HOTTEST)
        self.top_k[row] = opened.top_k if 0 < opened.top_k < self.vocab_size else self.vocab_size
        self.top_p[row] = opened.top_p
        self.min_p[row] = opened.min_p
        self.seed[row] = opened.seed & 0xFFFF_FFFF_FFFF_FFFF

    def close(self, row: int) -> None:
        """Forget a row. ValueError if it is not open."""
        if not self.open_rows[row]:
            raise ValueError(f"row {row} was closed while it was not open")
        self.open_rows[row] = False

    def rows(self, rows: NDArray[np.int32], positions: NDArray[np.integer]) -> SamplingRows:
        """What `Ops.sample` needs: rows int32 [n], positions int [n] of the token that each row is about to get.

        ValueError if a row is not open.
        """
        if np.count_nonzero(is_open := self.open_rows[rows]) < len(rows):
            raise ValueError(f"rows {rows[~is_open].tolist()} are sampled but not open")
        key = rows.tobytes()
        if self._last is None or self._last_key != key:
            self._last, self._last_key = self._columns(rows), key
        columns = self._last
        if columns.greedy:
            return columns
        stream = self._put(streams(self.seed[rows], np.asarray(positions, dtype=np.int64)))
        return replace(columns, stream=stream)

    def _columns(self, rows: NDArray[np.int32]) -> SamplingRows:
        """All but the streams, which nobody draws from where all rows are greedy."""
        temperature, top_k, top_p, min_p = (
            column[rows] for column in (self.temperature, self.top_k, self.top_p, self.min_p)
        )
        groups = None
        if temperature.any():
            draws = temperature > 0
            filtered = draws & ((top_k < self.vocab_size) | (top_p < 1))
            groups = SamplingGroups(
                plain=self._put(np.flatnonzero(draws & ~filtered)),
                filtered=self._put(np.flatnonzero(filtered)),
                most_top_k=int(top_k[filtered].max(initial=0)),
                min_p=bool((draws & (min_p > 0)).any()),
            )
        return SamplingRows(
            temperature=self._put(temperature),
            top_k=self._put(top_k),
            top_p=self._put(top_p),
            min_p=self._put(min_p),
            stream=self._put(np.zeros(len(rows), dtype=np.int64)),
            greedy=groups is None,
            groups=groups,
        )

    def _put(self, column: NDArray[np.generic]) -> torch.Tensor:
        return to_device(column, self.device)
