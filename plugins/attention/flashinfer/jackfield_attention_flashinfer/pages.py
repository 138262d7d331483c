"""Which pages a row's tokens lie in, as FlashInfer is told: indptr, indices, last_page_len. It imports no FlashInfer.

A row of a window layer starts at the page of the first token that one of its new tokens sees. What lies before is undefined
in the tables, and must not be read; FlashInfer's tensor-core kernels begin at that very token (`kv_start_idx`).

The host knows the lengths, or bounds of them, and lays the work out; the device has the tables and the true lengths, and finds
the pages. Neither waits for the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class HostPages:
    """The same three words for all rows, int32, on the host.

    indptr          [n + 1] where each row's pages start among all
    last_page_len   [n] tokens in a row's last page, 1 .. page size
    kv_lens         [n] tokens of a row from the start of its first page on
    """

    indptr: NDArray[np.int32]
    last_page_len: NDArray[np.int32]
    kv_lens: NDArray[np.int32]

    @property
    def total(self) -> int:
        """Pages of all rows."""
        return int(self.indptr[-1])


def host_pages(
    q_lens: NDArray[np.int32], kv_lens: NDArray[np.int32], window: int | None, page_size: int, *, exact: bool
) -> HostPages:
    """q_lens, kv_lens int32 [n]. exact False: kv_lens are upper bounds, and so is the result: no shorter row needs more pages."""
    kept = kv_lens.astype(np.int64)
    if window is not None and exact:
        first = np.maximum(kept - q_lens - (window - 1), 0)
        kept -= first // page_size * page_size
    elif window is not None:
        # A shorter row may begin later in its first page than this one, so any place in it is allowed for.
        kept = np.minimum(kept, q_lens.astype(np.int64) + (window - 1) + (page_size - 1))
    pages = -(-kept // page_size)
    indptr = np.zeros(len(kept) + 1, dtype=np.int32)
    np.cumsum(pages, out=indptr[1:])
    last = kept - (pages - 1) * page_size
    return HostPages(indptr=indptr, last_page_len=last.astype(np.int32), kv_lens=kept.astype(np.int32))


@dataclass(frozen=True, kw_only=True)
class DevicePages:
    """The three words on the device, int32: indptr [n + 1], indices [at least the pages of all rows], last_page_len [n]."""

    indptr: torch.Tensor
    indices: torch.Tensor
    last_page_len: torch.Tensor

    @classmethod
    def empty(cls, rows: int, capacity: int, device: torch.device) -> DevicePages:
        """Memory for so many rows with so many pages in all. Zeros: page 0 is the dummy page, which anyone may read."""

        def zeros(size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=torch.int32, device=device)

        return cls(indptr=zeros(rows + 1), indices=zeros(capacity), last_page_len=zeros(rows))


def write_pages(
    into: DevicePages,
    table: torch.Tensor,
    rows: torch.Tensor,
    q_lens: torch.Tensor,
    kv_lens: torch.Tensor,
    window: int | None,
    page_size: int,
) -> torch.Tensor:
    """Fill `into` from the true lengths. table int32 [rows, max_context] slots; rows, q_lens, kv_lens int32 [n].

    Returns the tokens of each row from the start of its first page on, int64 [n]. Indices beyond the last row's name pages of
    that row. Reads nothing on the host.
    """
    lengths = kv_lens.long()
    if window is None:
        first = torch.zeros_like(lengths)
    else:
        first = (lengths - q_lens.long() - (window - 1)).clamp_(min=0)
    first_page = first // page_size
    kept = lengths - first_page * page_size
    pages = (kept + (page_size - 1)) // page_size
    ends = torch.cumsum(pages, dim=0)
    # Not by an index: a number that is set there is copied from the host, which no graph can hold.
    into.indptr[:1].zero_()
    into.indptr[1:].copy_(ends)
    into.last_page_len.copy_(kept - (pages - 1) * page_size)

    place = torch.arange(into.indices.shape[0], device=table.device)
    row = torch.searchsorted(ends, place, right=True).clamp_(max=len(lengths) - 1)
    page = first_page[row] + place - (ends - pages)[row]
    # The page's first token may lie before the window, where the table says nothing; past a row's end it says nothing either.
    token = torch.minimum(torch.maximum(page * page_size, first[row]), lengths[row] - 1)
    into.indices.copy_(table[rows.long()[row], token] // page_size)
    return kept
