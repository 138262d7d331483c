"""Sampling parameters by row, and the random number of a draw from (seed, position) alone."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import RowOpen, SamplingRows

GREEDY_BELOW = 1e-5
"""Temperatures under this are greedy: the draw could differ from the arg max only among all but equal logits."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014): a bijection whose output passes for random."""
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    return state ^ (state >> np.uint64(31))


def uniform(seeds: NDArray[np.uint64], positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """float64 [n] in [0, 1) with 53 random bits: a hash of (seed, position), free of any state and of neighbours.

    The seed is mixed before the position is added, so that neighbouring seeds do not give shifted streams.
    """
    streams = _mix(seeds.astype(np.uint64) + _GOLDEN)
    counters = (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    bits = _mix(streams + counters) >> np.uint64(11)
    return bits.astype(np.float64) * np.float64(2.0**-53)


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

    def open(self, opened: RowOpen) -> None:
        """Take a row's parameters. ValueError if the row is open already."""
        row = opened.row
        if self.open_rows[row]:
            raise ValueError(f"row {row} was opened while it was open")
        self.open_rows[row] = True
        self.temperature[row] = 0.0 if opened.temperature < GREEDY_BELOW else opened.temperature
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
        if not self.open_rows[rows].all():
            raise ValueError(f"rows {rows[~self.open_rows[rows]].tolist()} are sampled but not open")
        temperature = self.temperature[rows]
        return SamplingRows(
            temperature=self._put(temperature),
            top_k=self._put(self.top_k[rows]),
            top_p=self._put(self.top_p[rows]),
            min_p=self._put(self.min_p[rows]),
            uniform=self._put(uniform(self.seed[rows], np.asarray(positions, dtype=np.int64))),
            greedy=not temperature.any(),
        )

    def _put(self, column: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(column).to(self.device)
