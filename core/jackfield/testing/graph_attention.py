"""A small attention backend with the feature "graph": plain torch, the same few operations for every batch.

Each token gathers all that its row might hold, under a mask. Slow and large for long contexts, and so for tests: of what runs
recorded steps, and as an example of what the three methods of the feature do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch

from jackfield.hookspecs import (
    AttentionBackend,
    AttentionBatch,
    AttentionContext,
    AttentionLayer,
    AttentionPlan,
    GraphShape,
    KVTensors,
)

FEATURES = ("window", "soft_cap", "mixed", "graph")
"""What its manifest would list; its layout is nhd-paged."""

Sight = tuple[str, int | None]
"""KV group and window: layers that share it see the same slots."""


class GraphedPlan(AttentionPlan):
    """rows, positions, kv_lens   int64 [tokens]: each token's row, position, and its row's length
    longest   most tokens of any row
    seen      Sight -> slots int64 [tokens, longest] and which of them are seen
    """

    __slots__ = ("batch", "kv_lens", "longest", "out_slots", "positions", "rows", "seen")

    def __init__(self, batch: AttentionBatch, longest: int) -> None:
        self.batch = batch
        self.longest = longest
        self.out_slots = batch.out_slots
        self.rows = self.positions = self.kv_lens = batch.rows
        self.seen: Mapping[Sight, tuple[torch.Tensor, torch.Tensor]] = {}


class GraphAttention(AttentionBackend):
    """In float32 throughout."""

    def __init__(self, context: AttentionContext) -> None:
        self.tables = context.tables
        self.sights: tuple[Sight, ...] = tuple(dict.fromkeys((one.group, one.window) for one in context.layers))
        self.kv: Mapping[str, KVTensors] = {}

    def bind(self, kv: Mapping[str, KVTensors]) -> None:
        self.kv = kv

    def plan(self, batch: AttentionBatch) -> GraphedPlan:
        plan = GraphedPlan(batch, batch.max_kv)
        self.look(plan, (batch.q_starts[1:] - batch.q_starts[:-1]).long(), int(batch.host.q_lens.sum()))
        return plan

    def look(self, plan: GraphedPlan, counts: torch.Tensor, total: int) -> None:
        """Fill the plan on the device. counts int64 [n]: new tokens of each row, `total` together."""
        batch = plan.batch
        plan.rows, plan.kv_lens, ends = (
            torch.repeat_interleave(one.long(), counts, output_size=total)
            for one in (batch.rows, batch.kv_lens, batch.q_starts[1:])
        )
        plan.positions = plan.kv_lens - ends + torch.arange(total, device=counts.device)
        plan.seen = {sight: self.slots(plan, *sight) for sight in self.sights}

    def slots(self, plan: GraphedPlan, group: str, window: int | None) -> tuple[torch.Tensor, torch.Tensor]:
        """What is not seen is read from where the token itself stands, whose slot holds a number."""
        key, query = torch.arange(plan.longest, device=plan.rows.device), plan.positions[:, None]
        seen = key <= query
        if window is not None:
            seen = seen & (key > query - window)
        held = torch.where(seen, key, query)
        return self.tables[group][plan.rows[:, None], held].long(), seen

    def plan_graph(self, batch: AttentionBatch, shape: GraphShape) -> GraphedPlan:
        return GraphedPlan(batch, shape.max_kv)

    def in_graph(self, plan: AttentionPlan) -> None:
        plan = cast(GraphedPlan, plan)
        self.look(plan, torch.ones_like(plan.batch.rows).long(), len(plan.batch.rows))

    def refresh(self, plan: AttentionPlan, batch: AttentionBatch) -> None:
        """Everything is looked up on the device."""

    def attend(
        self,
        plan: AttentionPlan,
        layer: AttentionLayer,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        out: torch.Tensor,
    ) -> None:
        plan = cast(GraphedPlan, plan)
        kv, source = self.kv[layer.group], layer.id if layer.kv_source is None else layer.kv_source
        keys, values = kv.of("k", source).flatten(0, 1), kv.of("v", source).flatten(0, 1)
        if k is not None and v is not None:
            keys.index_copy_(0, plan.out_slots[layer.group], k)
            values.index_copy_(0, plan.out_slots[layer.group], v)
        slots, seen = plan.seen[layer.group, layer.window]
        share = layer.num_heads // layer.num_kv_heads
        keys = keys[slots].float().repeat_interleave(share, dim=2)  # [tokens, longest, heads, size]
        values = values[slots].float().repeat_interleave(share, dim=2)
        scores = torch.einsum("thd,tkhd->thk", q.float(), keys) * layer.scale
        if layer.soft_cap is not None:
            scores = layer.soft_cap * torch.tanh(scores / layer.soft_cap)
        weights = torch.softmax(scores.masked_fill(~seen[:, None], -torch.inf), dim=-1)
        out.copy_(torch.einsum("thk,tkhd->thd", weights, values))
