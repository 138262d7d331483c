"""A small correct attention backend, row by row, cut into steps so that each can be made wrong by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import torch

from jackfield.hookspecs import (
    AttentionBackend,
    AttentionBatch,
    AttentionContext,
    AttentionLayer,
    AttentionPlan,
    BatchFault,
    GraphShape,
    KVTensors,
)
from jackfield.model_executor.dtypes import as_stored


class Plan(AttentionPlan):
    """spans: (first token, token behind the last, row, true length) of each row."""

    __slots__ = ("among", "batch", "out_slots", "spans")

    batch: AttentionBatch

    def __init__(
        self,
        spans: list[tuple[int, int, int, int]],
        out_slots: Mapping[str, torch.Tensor],
        among: torch.Tensor | None = None,
    ) -> None:
        self.spans = spans
        self.out_slots = out_slots
        self.among = among


class PlainAttention(AttentionBackend):
    """For layout nhd-paged on a CPU; refuses what it is told to refuse."""

    most_rows = 10**6

    def __init__(self, context: AttentionContext) -> None:
        self.context = context
        self.kv: Mapping[str, KVTensors] = {}

    def bind(self, kv: Mapping[str, KVTensors]) -> None:
        self.kv = kv

    def plan_graph(self, batch: AttentionBatch, shape: GraphShape) -> Plan:
        plan = Plan([], batch.out_slots)
        plan.batch = batch
        return plan

    def in_graph(self, plan: AttentionPlan) -> None:
        plan = cast(Plan, plan)
        columns = zip(plan.batch.rows.tolist(), plan.batch.kv_lens.tolist(), strict=True)
        plan.spans = [(i, i + 1, row, length) for i, (row, length) in enumerate(columns)]

    def refresh(self, plan: AttentionPlan, batch: AttentionBatch) -> None:
        cast(Plan, plan).batch = batch

    def plan(self, batch: AttentionBatch) -> Plan:
        if len(batch.host.q_lens) > self.most_rows:
            raise BatchFault(f"more than {self.most_rows} rows")
        starts = batch.q_starts.tolist()
        spans = zip(starts[:-1], starts[1:], batch.rows.tolist(), self.lengths(batch), strict=True)
        return Plan(list(spans), batch.out_slots, None if batch.mask is None else batch.mask.among)

    def lengths(self, batch: AttentionBatch) -> list[int]:
        lengths: list[int] = batch.kv_lens.tolist()
        return lengths

    def attend(
        self,
        plan: AttentionPlan,
        layer: AttentionLayer,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        out: torch.Tensor,
    ) -> None:
        plan = cast(Plan, plan)
        keys, values = self.pages(layer)
        if k is not None and v is not None:
            self.write(plan.out_slots[layer.group], keys, values, k, v)
        for start, stop, row, length in plan.spans:
            first = self.first_seen(layer, length - (stop - start))
            slots = self.slots(layer, row, first, length)
            query = torch.arange(length - (stop - start), length)
            key = torch.arange(first, length)
            if plan.among is None:
                seen = self.seen(layer, query[:, None], key[None, :])
            else:
                seen = self.seen_in_tree(layer, query[:, None], key[None, :], plan.among[start:stop, : stop - start])
            out[start:stop] = self.one_row(layer, q[start:stop], self.kept(keys, slots), values[slots], seen).to(
                out.dtype
            )

    def kept(self, keys: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        return keys[slots]

    def pages(self, layer: AttentionLayer) -> tuple[torch.Tensor, torch.Tensor]:
        """[slots, kv_heads, size] each, views."""
        kv, source = self.kv[layer.group], layer.id if layer.kv_source is None else layer.kv_source
        return kv.of("k", source).flatten(0, 1), kv.of("v", source).flatten(0, 1)

    def write(
        self, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> None:
        keys[slots], values[slots] = self.stored(k, keys.dtype), self.stored(v, values.dtype)

    def stored(self, given: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return as_stored(given, dtype)

    def first_seen(self, layer: AttentionLayer, position: int) -> int:
        return 0 if layer.window is None else max(0, position - layer.window + 1)

    def slots(self, layer: AttentionLayer, row: int, first: int, length: int) -> torch.Tensor:
        return self.context.tables[layer.group][row, first:length].long()

    def seen(self, layer: AttentionLayer, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        seen = key <= query if layer.causal else key >= 0
        return seen if layer.window is None else seen & (key > query - layer.window)

    def seen_in_tree(
        self, layer: AttentionLayer, query: torch.Tensor, key: torch.Tensor, among: torch.Tensor
    ) -> torch.Tensor:
        """among bool [new, new]."""
        cached = int(query[0, 0])
        new = torch.cat([torch.ones(len(among), cached, dtype=torch.bool), among], dim=1)[:, int(key[0, 0]) :]
        return self.seen(replace(layer, causal=False), query, key) & (new | (key == query))

    def head_map(self, layer: AttentionLayer) -> torch.Tensor:
        return torch.arange(layer.num_heads) // (layer.num_heads // layer.num_kv_heads)

    def capped(self, layer: AttentionLayer, scores: torch.Tensor) -> torch.Tensor:
        return scores if layer.soft_cap is None else layer.soft_cap * torch.tanh(scores / layer.soft_cap)

    def one_row(self, layer: AttentionLayer, q: Any, k: Any, v: Any, seen: torch.Tensor) -> torch.Tensor:
        heads = self.head_map(layer)
        scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()[:, heads]) * layer.scale
        weights = torch.softmax(self.capped(layer, scores).masked_fill(~seen, -torch.inf), dim=-1)
        return self.weighed(weights, v[:, heads])

    def weighed(self, weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.einsum("hqk,khd->qhd", weights, v.float())
