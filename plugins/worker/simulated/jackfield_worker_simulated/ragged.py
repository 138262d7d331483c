"""Ragged runs as flat index arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def flat_runs(
    rows: NDArray[np.int32], starts: NDArray[np.int32], lengths: NDArray[np.int32]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Row and position of every token of runs that begin at `starts` in `rows`, one run behind the other."""
    ends = np.cumsum(lengths, dtype=np.intp)
    total = int(ends[-1]) if len(ends) else 0
    positions = np.arange(total, dtype=np.intp) + np.repeat(starts - (ends - lengths), lengths)
    return np.repeat(rows, lengths).astype(np.intp), positions
