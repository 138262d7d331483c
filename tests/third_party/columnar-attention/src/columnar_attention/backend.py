"""Attention over pages whose keys stand as columns.

Rows of one batch with the same number of new tokens are computed together (a decode step is one such group). A group's
pages are gathered whole; what lies beyond a row's length in its last page, or in the padding of a shorter row, is masked,
and its values are zeroed, because memory that nobody wrote may hold NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from jackfield.hookspecs import (
    AttentionBackend,
    AttentionBatch,
    AttentionContext,
    AttentionLayer,
    AttentionPlan,
    KVTensors,
)


@dataclass(frozen=True)
class _Group:
    """tokens int64 [rows * q_len]; pages int64 [rows, most pages]; seen bool [rows, q_len, most pages * page];
    written bool [rows, most pages * page]"""

    tokens: torch.Tensor
    pages: torch.Tensor
    seen: torch.Tensor
    written: torch.Tensor


class _Plan(AttentionPlan):
    __slots__ = ("groups", "offsets", "pages")

    def __init__(self, groups: list[_Group], pages: torch.Tensor, offsets: torch.Tensor) -> None:
        self.groups = groups
        self.pages = pages  # of each new token, int64 [total new]
        self.offsets = offsets


class ColumnarAttention(AttentionBackend):
    def __init__(self, context: AttentionContext) -> None:
        (group,) = context.groups  # window groups are a feature that the manifest does not declare
        self._name = group.name
        self._page_size = context.page_size
        self._table = context.tables[group.name]
        self._kv: KVTensors | None = None

    def bind(self, kv: Mapping[str, KVTensors]) -> None:
        self._kv = kv[self._name]

    def plan(self, batch: AttentionBatch) -> _Plan:
        slots = batch.out_slots[self._name]
        starts = np.concatenate([[0], np.cumsum(batch.host.q_lens)])
        groups = []
        for q_len in np.unique(batch.host.q_lens).tolist():
            members = np.flatnonzero(batch.host.q_lens == q_len)
            tokens = (starts[members][:, None] + np.arange(q_len)).reshape(-1)
            groups.append(self._group(batch, members, tokens, q_len))
        return _Plan(groups, slots // self._page_size, slots % self._page_size)

    def _group(self, batch: AttentionBatch, members: np.ndarray, tokens: np.ndarray, q_len: int) -> _Group:
        """The host's lengths give shapes (they may be upper bounds); what is seen comes from the true ones."""
        device, size = batch.rows.device, self._page_size
        index = torch.from_numpy(members).to(device)
        rows, kv_lens = batch.rows[index].long(), batch.kv_lens[index].long()
        most_pages = -(-int(batch.host.kv_lens[members].max()) // size)
        first_of_page = torch.arange(most_pages, device=device) * size
        # Beyond its length a row's table says nothing: look at its last page again, and mask it.
        looked_at = torch.minimum(first_of_page, kv_lens[:, None] - 1)
        pages = self._table[rows[:, None], looked_at].long() // size
        position = torch.arange(most_pages * size, device=device)
        query = kv_lens[:, None] - q_len + torch.arange(q_len, device=device)
        return _Group(
            tokens=torch.from_numpy(tokens).to(device),
            pages=pages,
            seen=position <= query[:, :, None],
            written=position < kv_lens[:, None],
        )

    def attend(
        self,
        plan: AttentionPlan,
        layer: AttentionLayer,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        out: torch.Tensor,
    ) -> None:
        if not isinstance(plan, _Plan) or self._kv is None:
            raise TypeError("attend needs a plan of this backend, after bind")
        source = layer.id if layer.kv_source is None else layer.kv_source
        key_pages, value_pages = self._kv.of("k", source), self._kv.of("v", source)
        if k is not None and v is not None:
            key_pages[plan.pages, :, :, plan.offsets] = k
            value_pages[plan.pages, :, plan.offsets] = v
        for group in plan.groups:
            queries = q.index_select(0, group.tokens)
            found = _attention(layer, group, queries, key_pages[group.pages], value_pages[group.pages])
            out.index_copy_(0, group.tokens, found)


def _attention(layer: AttentionLayer, group: _Group, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """q [rows * q_len, heads, head], k [rows, pages, kv_heads, head, page], v [rows, pages, kv_heads, page, v_head];
    returns [rows * q_len, heads, v_head]."""
    rows, q_len, length = group.seen.shape
    share = layer.num_heads // layer.num_kv_heads
    keys = k.permute(0, 2, 3, 1, 4).reshape(rows, layer.num_kv_heads, 1, layer.head_size, length)
    values = v.permute(0, 2, 1, 3, 4).reshape(rows, layer.num_kv_heads, 1, length, layer.v_head_size)
    values = values.masked_fill(~group.written[:, None, None, :, None], 0)
    queries = q.view(rows, q_len, layer.num_kv_heads, share, layer.head_size).permute(0, 2, 3, 1, 4)
    scores = (queries.float() @ keys.float()) * layer.scale  # [rows, kv_heads, share, q_len, length]
    scores = scores.masked_fill(~group.seen[:, None, None], -torch.inf)
    found = torch.softmax(scores, dim=-1) @ values.float()
    return found.permute(0, 3, 1, 2, 4).reshape(rows * q_len, layer.num_heads, layer.v_head_size).to(q.dtype)
