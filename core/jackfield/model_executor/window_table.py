"""The window pool as the device sees it: in which of its pages each page has the window layers' KV, and for the rows of a
batch the slots there that their queries may look back to."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import WindowWrites
from jackfield.model_executor.req_to_token import ReqToTokenTable


class WindowTable:
    """slots    int32 [max_rows, max_context], for the attention backend: a row's entries are those of its last batch, from the
             first token that a query of it saw
    tokens   what the window layers look back, themselves included
    """

    def __init__(self, table: ReqToTokenTable, *, total_slots: int, page_size: int, tokens: int) -> None:
        self.slots = torch.zeros_like(table.slots)
        self.tokens = tokens
        self._table = table
        self._page_size = page_size
        self._page_of = torch.zeros(total_slots // page_size + 1, dtype=torch.int32, device=table.slots.device)

    def apply(self, writes: WindowWrites) -> None:
        """Changes of the map. Their bounds are the caller's to check."""
        if writes.pages.size:
            upload = self._table.device.upload
            self._page_of[upload(writes.pages, np.int64)] = upload(writes.window_pages, np.int32)

    def translate(self, slots: torch.Tensor) -> torch.Tensor:
        """The slots of the window pool for these slots, int64 [n] both."""
        return self._page_of[slots // self._page_size].long() * self._page_size + slots % self._page_size

    def look_up(self, rows: NDArray[np.int32], computed: NDArray[np.int32], ends: NDArray[np.int32]) -> None:
        """Bring `slots` up to date for rows that compute tokens computed .. ends - 1; int32 [n]."""
        upload = self._table.device.upload
        first = np.maximum(computed.astype(np.int64) - (self.tokens - 1), 0)
        lengths = ends - first
        total = int(lengths.sum())
        counts = upload(lengths, np.int64)
        shift = upload(first - (np.cumsum(lengths) - lengths), np.int64)
        row = torch.repeat_interleave(upload(rows, np.int64), counts, output_size=total)
        position = torch.arange(total, device=self.slots.device) + torch.repeat_interleave(
            shift, counts, output_size=total
        )
        self.slots[row, position] = self.translate(self._table.slots[row, position].long()).int()
