"""Row by row: gather the keys and values that the row sees, and attend to them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from jackfield.hookspecs import (
    AttentionBackend,
    AttentionBatch,
    AttentionContext,
    AttentionLayer,
    AttentionPlan,
    KVTensors,
)


class Plan(AttentionPlan):
    """rows: of each request its new tokens (start, stop) and the slots of all that they see; written: of each new token."""

    def __init__(self, rows: list[tuple[int, int, torch.Tensor]], written: torch.Tensor) -> None:
        self.rows = rows
        self.written = written


class DenseAttention(AttentionBackend):
    def __init__(self, context: AttentionContext) -> None:
        (self._group,) = context.groups
        self._table = context.tables[self._group.name]
        self._kv: Mapping[str, KVTensors] = {}

    def bind(self, kv: Mapping[str, KVTensors]) -> None:
        self._kv = kv

    def plan(self, batch: AttentionBatch) -> Plan:
        rows = []
        start = 0
        for row, new, length in zip(batch.rows, batch.host.q_lens.tolist(), batch.kv_lens, strict=True):
            rows.append((start, start + new, self._table[row, : int(length)].long()))
            start += new
        return Plan(rows, batch.out_slots[self._group.name])

    def attend(
        self,
        plan: AttentionPlan,
        layer: AttentionLayer,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        out: torch.Tensor,
    ) -> None:
        assert isinstance(plan, Plan)
        source = layer.id if layer.kv_source is None else layer.kv_source
        tensors = self._kv[layer.group]
        keys, values = (tensors.of(role, source).flatten(0, 1) for role in ("k", "v"))
        if k is not None and v is not None:
            keys[plan.written], values[plan.written] = k, v
        share = layer.num_heads // layer.num_kv_heads
        for start, stop, slots in plan.rows:
            seen_k = keys[slots].repeat_interleave(share, dim=1)
            seen_v = values[slots].repeat_interleave(share, dim=1)
            scores = torch.einsum("qhd,khd->hqk", q[start:stop], seen_k) * layer.scale
            place = torch.arange(len(slots))
            later = place[None, :] > place[len(slots) - (stop - start) :, None]
            probabilities = scores.masked_fill(later, -torch.inf).softmax(dim=-1)
            out[start:stop] = torch.einsum("hqk,khd->qhd", probabilities, seen_v)
