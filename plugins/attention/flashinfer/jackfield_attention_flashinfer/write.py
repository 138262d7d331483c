"""New keys and values into their slots, both in one of FlashInfer's launches.

`append_paged_kv_cache` takes rows of pages and positions in them. Here each new token is a row of one page: its page and its
place there are all that a slot says, in any layout.
"""

from __future__ import annotations

from typing import Any

import torch

from jackfield.model_executor.dtypes import as_stored
from jackfield_attention_flashinfer.library import flashinfer


class SlotWrites:
    """Where the new tokens of a batch go in one KV group. Its memory lasts, so that a graph may record `follow`.

    slots   int64 [tokens], the batch's own tensor
    """

    def __init__(self, slots: torch.Tensor, page_size: int) -> None:
        self._slots = slots
        self._page_size = page_size
        tokens, device = slots.shape[0], slots.device
        self._pages, self._places, self._last = (
            torch.zeros(tokens, dtype=torch.int32, device=device) for _ in range(3)
        )
        self._starts = torch.arange(tokens + 1, dtype=torch.int32, device=device)
        self._rows = torch.arange(tokens, dtype=torch.int32, device=device)
        self.follow()

    def follow(self) -> None:
        """Look at the slots again."""
        self._pages.copy_(self._slots // self._page_size)
        self._places.copy_(self._slots % self._page_size)
        self._last.copy_(self._places + 1)

    def store(self, pages: tuple[torch.Tensor, torch.Tensor], layout: str, k: torch.Tensor, v: torch.Tensor) -> None:
        """k, v [tokens, kv_heads, head] into a layer's key and value pages; layout "NHD" or "HND"."""
        keys, values = pages
        append: Any = flashinfer().append_paged_kv_cache
        append(
            as_stored(k, keys.dtype),
            as_stored(v, values.dtype),
            self._rows,
            self._places,
            pages,
            self._pages,
            self._starts,
            self._last,
            kv_layout=layout,
        )
