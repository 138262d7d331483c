"""The slow twin of every attention kernel: dense attention in float64 over paged KV, one query at a time in the open.

It knows how dimensions are ordered inside a page, and nothing of batching, buckets or masks: for each query it gathers
the keys that the query may see, one by one from the table, and applies the definition.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import AttentionLayer, KVTensors
from jackfield.model_executor.dtypes import as_stored


def read_slots(kv: KVTensors, role: str, layer_id: int, slots: torch.Tensor) -> torch.Tensor:
    """The vectors under `slots` (int64 [n]) of one layer: [n, kv_heads, head or v_head].

    Any layout will do that keeps k and v apart and each vector whole, in whatever order of dimensions. ValueError if not.
    """
    pages = _token_major(kv, role, layer_id)
    return pages[slots // kv.page_size, slots % kv.page_size]


def write_slots(kv: KVTensors, role: str, layer_id: int, slots: torch.Tensor, values: torch.Tensor) -> None:
    """The inverse of `read_slots`: values [n, kv_heads, head or v_head], stored in the KV's dtype."""
    pages = _token_major(kv, role, layer_id)
    pages[slots // kv.page_size, slots % kv.page_size] = as_stored(values, pages.dtype)


def _token_major(kv: KVTensors, role: str, layer_id: int) -> torch.Tensor:
    """A view [pages, page, kv_heads, size], whatever the layout's order."""
    shape = next((spec.shape for spec in kv.layout.tensors if spec.role == role), ())
    size = "v_head" if role == "v" and "v_head" in shape else "head"
    order = ("page", "kv_heads", size)
    if len(shape) != len(order) or set(shape) != set(order):
        raise ValueError(
            f"the reference reads layouts whose {role!r} is some order of {', '.join(order)}; "
            f"{kv.layout.name!r} has {shape or 'no such tensor'}"
        )
    return kv.of(role, layer_id).permute(0, *(1 + shape.index(word) for word in order))


def reference_attention(
    layer: AttentionLayer,
    kv: KVTensors,
    table: torch.Tensor,
    rows: NDArray[np.int32],
    q_lens: NDArray[np.int32],
    kv_lens: NDArray[np.int32],
    q: torch.Tensor,
    among: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of `q` [total new, num_heads, head_size] over KV that is already written; float64 on the CPU.

    table [rows, max_context] slots; rows, q_lens, kv_lens int32 [n]; among as in `TreeMask`. Returns [total new, num_heads,
    v_head_size].
    """
    source = layer.id if layer.kv_source is None else layer.kv_source
    share = layer.num_heads // layer.num_kv_heads
    out = torch.full((int(q_lens.sum()), layer.num_heads, layer.v_head_size), math.nan, dtype=torch.float64)
    token = 0
    for row, q_len, kv_len in zip(rows.tolist(), q_lens.tolist(), kv_lens.tolist(), strict=True):
        slots = table[row, :kv_len].cpu().long()
        keys = read_slots(kv, "k", source, slots.to(table.device)).double().cpu()
        values = read_slots(kv, "v", source, slots.to(table.device)).double().cpu()
        for position in range(kv_len - q_len, kv_len):
            last = position if layer.causal and among is None else kv_len - 1
            first = 0 if layer.window is None else max(0, position - layer.window + 1)
            seen = torch.arange(first, last + 1)
            if among is not None:
                listed = among[token, :q_len].cpu().nonzero().flatten() + kv_len - q_len
                seen = seen[(seen < kv_len - q_len) | (seen == position) | torch.isin(seen, listed)]
            # query head h reads key/value head h // share
            query = q[token].double().cpu().view(layer.num_kv_heads, share, layer.head_size)
            scores = torch.einsum("nkd,ksd->ksn", keys[seen], query) * layer.scale
            if layer.soft_cap is not None:
                scores = layer.soft_cap * torch.tanh(scores / layer.soft_cap)
            found = torch.einsum("ksn,nkd->ksd", torch.softmax(scores, dim=-1), values[seen])
            out[token] = found.reshape(layer.num_heads, layer.v_head_size)
            token += 1
    return out
