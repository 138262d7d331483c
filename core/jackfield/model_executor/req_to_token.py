"""The device's copy of the request-to-token table: slot of each token of each row. It applies what the scheduler decided."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import RowWrites
from jackfield.model_executor.device import Device


class ReqToTokenTable:
    """int32 [max_rows, max_context]; row 0 is the dummy row, slot 0 means "nowhere yet"."""

    def __init__(self, max_rows: int, max_context: int, device: Device) -> None:
        self.device = device
        self.slots = torch.zeros((max_rows, max_context), dtype=torch.int32, device=device.torch_device)
        # On a host device the same memory for NumPy, whose indexing of a few numbers takes a tenth of torch's time.
        self._host: NDArray[np.int32] | None = self.slots.numpy() if device.host else None

    def clear(self, rows: NDArray[np.int32]) -> None:
        """Forget rows, so that a write which never came shows as slot 0, not as another request's slot."""
        if not rows.size:
            return
        if self._host is not None:
            self._host[rows] = 0
        else:
            self.slots.index_fill_(0, self.device.upload(rows, np.int64), 0)

    def apply(self, writes: RowWrites) -> None:
        """Write the runs. Their bounds are the caller's to check."""
        total = writes.slots.size
        if total == 0:
            return
        if total == writes.rows.size and np.count_nonzero(writes.lengths) == total:  # a token a run
            rows, columns = writes.rows, writes.starts
        else:
            lengths = writes.lengths.astype(np.int64)
            run_starts = np.cumsum(lengths) - lengths
            columns = np.arange(total) + np.repeat(writes.starts - run_starts, lengths)
            rows = np.repeat(writes.rows, lengths)
        if self._host is not None:
            self._host[rows, columns] = writes.slots
            return
        device = self.device
        self.slots[device.upload(rows, np.int64), device.upload(columns, np.int64)] = device.upload(
            writes.slots, np.int32
        )

    def gather(self, rows: NDArray[np.integer], positions: NDArray[np.int64]) -> torch.Tensor:
        """Slots of the tokens (rows[i], positions[i]); host arrays [n] each, int64 [n] on the device back."""
        if self._host is not None:
            return torch.from_numpy(self._host[rows, positions].astype(np.int64))
        return self.slots[self.device.upload(rows, np.int64), self.device.upload(positions, np.int64)].long()
