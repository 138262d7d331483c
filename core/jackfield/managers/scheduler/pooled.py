"""What a worker gave of a prompt that ended, checked and made ready to send. Knows no request."""

from __future__ import annotations

import numpy as np

from jackfield.hookspecs import Pooling, WorkerResult


class BadPooled(Exception):
    """Pooled values that do not fit the batch or the run: the worker and the scheduler disagree, the replica cannot go on."""


class PooledReader:
    """pooling: what the run gives of each prompt."""

    def __init__(self, pooling: Pooling) -> None:
        self._width = pooling.width

    def read(self, result: WorkerResult, row: int) -> bytes | None:
        """float32, little-endian, of batch row `row`, which did not fail and whose prompt has ended; None if they are not all
        finite. Raises BadPooled."""
        values = result.pooled.get(row)
        if not isinstance(values, np.ndarray) or values.dtype != np.float32 or values.shape != (self._width,):
            found = (
                "nothing" if values is None else f"{getattr(values, 'dtype', type(values).__name__)} {np.shape(values)}"
            )
            raise BadPooled(f"{found} came back for batch row {row}, where float32 ({self._width},) was asked")
        if not np.isfinite(values).all():
            return None
        return values.astype("<f4", copy=False).tobytes()
