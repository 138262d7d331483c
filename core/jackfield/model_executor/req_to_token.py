"""The device's copy of the request-to-token table: slot of each token of each row. It applies what the scheduler decided."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import RowWrites
from jackfield.model_executor.upload import upload


class ReqToTokenTable:
    """int32 [max_rows, max_context]; row 0 is the dummy row, slot 0 means "nowhere yet"."""

    def __init__(self, max_rows: int, max_context: int, device: torch.device) -> None:
        self.slots = torch.zeros((max_rows, max_context), dtype=torch.int32, device=device)

    def clear(self, rows: NDArray[np.int32]) -> None:
        """Forget rows, so that a write which never came shows as slot 0, not as another request's slot."""
        if rows.size:
            self.slots[upload(rows, self.slots.device, np.int64)] = 0

    def apply(self, writes: RowWrites) -> None:
        """Write the runs. Their bounds are the caller's to check."""
        if writes.slots.size == 0:
            return
        lengths = writes.lengths.astype(np.int64)
        run_starts = np.cumsum(lengths) - lengths
        columns = np.arange(writes.slots.size) + np.repeat(writes.starts - run_starts, lengths)
        rows = np.repeat(writes.rows, lengths)
        device = self.slots.device
        self.slots[upload(rows, device, np.int64), upload(columns, device, np.int64)] = upload(
            writes.slots, device, np.int32
        )

    def gather(self, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Slots of the tokens (rows[i], positions[i]); int64 [n] each, int64 back."""
        return self.slots[rows, positions].long()
