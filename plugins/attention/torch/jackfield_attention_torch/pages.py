"""Vectors in and out of paged KV, by slot number, for the two layouts of the core and any dtype that the KV may have."""

from __future__ import annotations

import torch

from jackfield.hookspecs import AttentionLayer, KVTensors
from jackfield.model_executor.dtypes import as_stored, movable


class LayerPages:
    """The keys and values that one layer reads: its own, or those of the layer that it shares KV with."""

    def __init__(self, kv: KVTensors, layer: AttentionLayer, dtype: torch.dtype) -> None:
        """dtype: in which they are computed with, whatever they are kept in."""
        source = layer.id if layer.kv_source is None else layer.kv_source
        self._keys, self._values = kv.of("k", source), kv.of("v", source)
        self._head_major = kv.layout.name == "hnd-paged"
        self._dtype = dtype

    def write(self, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """k, v [n, kv_heads, size] to slots int64 [n]."""
        write(self._keys, slots, k, head_major=self._head_major)
        write(self._values, slots, v, head_major=self._head_major)

    def read(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values at slots int64 [rows, length]: [rows, kv_heads, length, size]."""
        return (
            as_stored(read(self._keys, slots, head_major=self._head_major), self._dtype),
            as_stored(read(self._values, slots, head_major=self._head_major), self._dtype),
        )


def write(pages: torch.Tensor, slots: torch.Tensor, values: torch.Tensor, *, head_major: bool) -> None:
    """values [n, kv_heads, size] to slots int64 [n]; pages [pages, page, kv_heads, size], or with the two middle
    dimensions exchanged where `head_major`."""
    values, pages = movable(as_stored(values, pages.dtype)), movable(pages)
    if head_major:
        page_size = pages.shape[2]
        pages[slots // page_size, :, slots % page_size] = values
    else:
        pages.view(-1, *pages.shape[2:]).index_copy_(0, slots, values)


def read(pages: torch.Tensor, slots: torch.Tensor, *, head_major: bool) -> torch.Tensor:
    """The vectors at slots int64 [rows, length], as SDPA wants them: [rows, kv_heads, length, size]."""
    rows, length = slots.shape
    flat, dtype, pages = slots.reshape(-1), pages.dtype, movable(pages)
    if head_major:
        page_size = pages.shape[2]
        found = pages[flat // page_size, :, flat % page_size]
    else:
        # index_select copies whole rows; indexing with a tensor is ten times slower on a CPU
        found = pages.view(-1, *pages.shape[2:]).index_select(0, flat)
    return found.view(dtype).view(rows, length, *found.shape[1:]).transpose(1, 2)
