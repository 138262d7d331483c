"""Attention over torch's SDPA. It knows layers, pages and plans; nothing of models, requests or scheduling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
import torch.nn.functional as F

from jackfield.hookspecs import (
    AttentionBackend,
    AttentionBatch,
    AttentionContext,
    AttentionLayer,
    AttentionPlan,
    KVTensors,
)
from jackfield_attention_torch.pages import LayerPages
from jackfield_attention_torch.plan import Bucket, TorchPlan, View, make_plan, sight_of

_QUERY_BLOCK = 256  # queries whose scores the soft-cap path holds at once


class TorchAttention(AttentionBackend):
    """The readable reference: gather a bucket's keys and values by slot, one SDPA call, scatter the result."""

    def __init__(self, context: AttentionContext) -> None:
        self._tables = context.tables
        self._sights = {layer.id: sight_of(layer) for layer in context.layers}
        self._distinct_sights = tuple(dict.fromkeys(self._sights.values()))
        self._kv: Mapping[str, KVTensors] = {}

    def bind(self, kv: Mapping[str, KVTensors]) -> None:
        self._kv = kv

    def plan(self, batch: AttentionBatch) -> TorchPlan:
        return make_plan(batch, self._tables, self._distinct_sights)

    def attend(
        self,
        plan: AttentionPlan,
        layer: AttentionLayer,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        out: torch.Tensor,
    ) -> None:
        plan = cast(TorchPlan, plan)
        kv = LayerPages(self._kv[layer.group], layer, q.dtype)
        if k is not None and v is not None:
            kv.write(plan.out_slots[layer.group], k, v)
        for bucket in plan.buckets:
            view = bucket.views[self._sights[layer.id]]
            keys, values = kv.read(view.slots)
            queries = q.index_select(0, bucket.tokens)
            queries = queries.view(bucket.rows, bucket.q_len, layer.num_heads, layer.head_size).transpose(1, 2)
            found = _attention(layer, bucket, view, queries, keys, values)  # [rows, heads, q_len, v_head]
            out.index_copy_(0, bucket.tokens, found.transpose(1, 2).flatten(0, 1))


def _attention(
    layer: AttentionLayer, bucket: Bucket, view: View, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> torch.Tensor:
    """q [rows, heads, q_len, head], k [rows, kv_heads, length, head], v [.., v_head] -> [rows, heads, q_len, v_head]."""
    if layer.soft_cap is not None:
        return _soft_capped(layer, layer.soft_cap, view, q, k, v)
    if bucket.q_len == 1:
        # The heads that share a KV head become its queries: no repeated KV, and in bfloat16 six times faster on a CPU.
        folded = q.reshape(bucket.rows, layer.num_kv_heads, -1, layer.head_size)
        found = F.scaled_dot_product_attention(folded, k, v, attn_mask=view.mask, scale=layer.scale)
        return found.reshape(bucket.rows, layer.num_heads, 1, layer.v_head_size)
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=view.mask,
        is_causal=view.diagonal,
        scale=layer.scale,
        enable_gqa=layer.num_heads != layer.num_kv_heads,
    )


def _soft_capped(
    layer: AttentionLayer, cap: float, view: View, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> torch.Tensor:
    """SDPA has no soft cap: the definition, in float32, a block of queries at a time."""
    rows, _, q_len, _ = q.shape
    share = layer.num_heads // layer.num_kv_heads
    grouped = q.reshape(rows, layer.num_kv_heads, share, q_len, layer.head_size).float()
    keys, values = k.float().unsqueeze(2), v.float().unsqueeze(2)  # [rows, kv_heads, 1, length, size]
    found = q.new_empty(rows, layer.num_kv_heads, share, q_len, layer.v_head_size)
    for start in range(0, q_len, _QUERY_BLOCK):
        stop = min(q_len, start + _QUERY_BLOCK)
        scores = grouped[:, :, :, start:stop] @ keys.transpose(-1, -2) * layer.scale
        scores = cap * torch.tanh(scores / cap)
        if view.diagonal:
            ahead = torch.ones(stop - start, k.shape[2], dtype=torch.bool, device=q.device).triu_(start + 1)
            scores.masked_fill_(ahead, -torch.inf)
        elif view.mask is not None:
            scores.masked_fill_(~view.mask[:, :, None, start:stop], -torch.inf)
        found[:, :, :, start:stop] = torch.softmax(scores, dim=-1) @ values
    return found.flatten(1, 2)
