"""Attention backends with one fault each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from jackfield.hookspecs import AttentionBatch, AttentionContext, AttentionLayer, BatchFault, GraphShape
from tests.conformance.plain_attention import PlainAttention, Plan


class WindowOneTooFar(PlainAttention):
    def seen(self, layer: AttentionLayer, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        wide = layer if layer.window is None else replace(layer, window=layer.window + 1)
        return super().seen(wide, query, key)

    def first_seen(self, layer: AttentionLayer, position: int) -> int:
        return super().first_seen(replace(layer, window=layer.window + 1) if layer.window else layer, position)


class ReadsBeforeTheWindow(PlainAttention):
    """Masks what it sees no more, but reads it: 0 * NaN is NaN."""

    def first_seen(self, layer: AttentionLayer, position: int) -> int:
        return 0


class ForgetsTheSoftCap(PlainAttention):
    def capped(self, layer: AttentionLayer, scores: torch.Tensor) -> torch.Tensor:
        return scores


class AlwaysCausal(PlainAttention):
    def seen(self, layer: AttentionLayer, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return super().seen(replace(layer, causal=True), query, key)


class WrongHeadMapping(PlainAttention):
    """Interleaved instead of in blocks."""

    def head_map(self, layer: AttentionLayer) -> torch.Tensor:
        return torch.arange(layer.num_heads) % layer.num_kv_heads


class IgnoresTheScale(PlainAttention):
    def one_row(self, layer: AttentionLayer, *rest: Any) -> torch.Tensor:
        return super().one_row(replace(layer, scale=layer.head_size**-0.5), *rest)


class WritesPaddingIntoARealSlot(PlainAttention):
    """Pads the batch with its last token, one slot further."""

    def write(self, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, k: Any, v: Any) -> None:
        super().write(slots, keys, values, k, v)
        keys[slots[-1] - slots[-1] % 2 + (1 - slots[-1] % 2)] = 0


class WritesInTheWrongOrder(PlainAttention):
    def write(self, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, k: Any, v: Any) -> None:
        super().write(slots.flip(0), keys, values, k, v)


class SeesNewTokensAsTheyCame(PlainAttention):
    """Takes the batch's own keys from what it was given, not from what is kept of them."""

    def attend(self, plan: Any, layer: AttentionLayer, q: Any, k: Any, v: Any, out: Any) -> None:
        self.given = {} if k is None else dict(zip(plan.out_slots[layer.group].tolist(), k, strict=True))
        super().attend(plan, layer, q, k, v, out)

    def kept(self, keys: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.given.get(slot, keys[slot].float()).float() for slot in slots.tolist()])


class LetsLargeKeysOverflow(PlainAttention):
    """A plain cast."""

    def stored(self, given: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return given.to(dtype)


class WritesThoughWritten(PlainAttention):
    """Takes k = None for a key of zeros."""

    def attend(self, plan: Any, layer: AttentionLayer, q: Any, k: Any, v: Any, out: Any) -> None:
        if k is None and layer.kv_source is None:
            k = q.new_zeros(q.shape[0], layer.num_kv_heads, layer.head_size)
            v = q.new_zeros(q.shape[0], layer.num_kv_heads, layer.v_head_size)
        super().attend(plan, layer, q, k, v, out)


class ReadsUnallocatedPages(PlainAttention):
    """Reads whole pages, and weighs what lies behind the row with zero."""

    def slots(self, layer: AttentionLayer, row: int, first: int, length: int) -> torch.Tensor:
        slots = super().slots(layer, row, first, length)
        return torch.cat([slots, slots.new_zeros(8)])

    def seen(self, layer: AttentionLayer, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        seen = super().seen(layer, query, key)
        return torch.cat([seen, torch.zeros(len(seen), 8, dtype=torch.bool)], dim=1)


class RowsShareAMask(PlainAttention):
    """Hides a NaN instead of keeping it in its row."""

    def weighed(self, weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return super().weighed(weights.nan_to_num(), v.nan_to_num())


class LeavesTheLastRowOut(PlainAttention):
    def plan(self, batch: AttentionBatch) -> Plan:
        plan = super().plan(batch)
        return Plan(plan.spans[:-1] or plan.spans, plan.out_slots)


class AddsUpInTheRunsDtype(PlainAttention):
    """Keeps its sum in bfloat16, key by key."""

    def weighed(self, weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        total = v.new_zeros(weights.shape[1], weights.shape[0], v.shape[-1])
        for key in range(v.shape[0]):
            total = total + weights[:, :, key].t()[:, :, None].to(v.dtype) * v[key]
        return total


class TrustsUpperBounds(PlainAttention):
    def lengths(self, batch: AttentionBatch) -> list[int]:
        lengths: list[int] = batch.host.kv_lens.tolist()
        return lengths


class PlansShareScratch(PlainAttention):
    """Each plan is written over the one before."""

    shared: list[Any] | None = None

    def plan(self, batch: AttentionBatch) -> Plan:
        made = super().plan(batch)
        if self.shared is None:
            self.shared = made.spans
        else:
            self.shared[:] = made.spans
        return Plan(self.shared, made.out_slots)


class RemembersBatchesByTheirTensors(PlainAttention):
    """Takes the same tensor for the same batch, whatever stands in it."""

    def __init__(self, context: AttentionContext) -> None:
        super().__init__(context)
        self.known: dict[int, Plan] = {}

    def plan(self, batch: AttentionBatch) -> Plan:
        return self.known.setdefault(batch.rows.data_ptr(), super().plan(batch))


class KeepsTheOldMemory(PlainAttention):
    def bind(self, kv: Any) -> None:
        self.kv = self.kv or kv


class SortsTheBatchInPlace(PlainAttention):
    def plan(self, batch: AttentionBatch) -> Plan:
        plan = super().plan(batch)
        batch.q_starts.copy_(batch.q_starts.flip(0))
        return plan


class ScalesQueriesInPlace(PlainAttention):
    def one_row(self, layer: AttentionLayer, q: Any, k: Any, v: Any, seen: torch.Tensor) -> torch.Tensor:
        q.mul_(layer.scale)
        return super().one_row(replace(layer, scale=1.0), q, k, v, seen)


class ReadsLengthsInPlan(PlainAttention):
    """`int` of a device tensor waits for the device."""

    def lengths(self, batch: AttentionBatch) -> list[int]:
        return [int(length) for length in batch.kv_lens]


class IgnoresKvSource(PlainAttention):
    """Takes the keys of the last layer that has any."""

    def pages(self, layer: AttentionLayer) -> tuple[torch.Tensor, torch.Tensor]:
        return super().pages(replace(layer, kv_source=None, id=max(self.kv[layer.group].group.layers)))


class AsksTheOtherGroupsTable(PlainAttention):
    def slots(self, layer: AttentionLayer, row: int, first: int, length: int) -> torch.Tensor:
        return next(iter(self.context.tables.values()))[row, first:length].long()


class RefusesWithAnotherError(PlainAttention):
    most_rows = 40

    def plan(self, batch: AttentionBatch) -> Plan:
        try:
            return super().plan(batch)
        except BatchFault as fault:
            raise ValueError(str(fault)) from fault


class WritesBeforeItRefuses(PlainAttention):
    most_rows = 40

    def plan(self, batch: AttentionBatch) -> Plan:
        if len(batch.host.q_lens) > self.most_rows:
            keys, _ = self.pages(self.context.layers[0])
            keys[batch.out_slots["full"]] = 0
        return super().plan(batch)


class DependsOnTheBatch(PlainAttention):
    """The order of the additions follows the number of rows."""

    def attend(self, plan: Any, layer: AttentionLayer, *rest: Any) -> None:
        self.flip = len(plan.spans) % 2 == 0
        super().attend(plan, layer, *rest)

    def weighed(self, weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return super().weighed(weights.flip(-1), v.flip(0)) if self.flip else super().weighed(weights, v)


class ForgetsTheTree(PlainAttention):
    """Takes drafts for a sequence."""

    def seen_in_tree(self, layer: AttentionLayer, query: torch.Tensor, key: torch.Tensor, among: Any) -> torch.Tensor:
        return self.seen(layer, query, key)


class TreesHideThePrompt(PlainAttention):
    """Lets a draft see its ancestors alone."""

    def seen_in_tree(self, layer: AttentionLayer, query: torch.Tensor, key: torch.Tensor, among: Any) -> torch.Tensor:
        return super().seen_in_tree(layer, query, key, among) & (key >= query[0, 0])


class DraftsDoNotSeeThemselves(PlainAttention):
    """Unless the mask says so."""

    def seen_in_tree(self, layer: AttentionLayer, query: torch.Tensor, key: torch.Tensor, among: Any) -> torch.Tensor:
        listed = torch.cat([torch.ones(len(among), int(query[0, 0]), dtype=torch.bool), among], dim=1)
        return super().seen_in_tree(layer, query, key, among) & listed[:, int(key[0, 0]) :]


class NeedsBothPhases(PlainAttention):
    def plan(self, batch: AttentionBatch) -> Plan:
        if len(self.context.phases) == 1:
            raise RuntimeError("made for one phase alone")
        return super().plan(batch)


class ForgetsTheMaximum(PlainAttention):
    """Exponentials as they come: infinity over infinity for a score above 88."""

    def one_row(self, layer: AttentionLayer, q: Any, k: Any, v: Any, seen: torch.Tensor) -> torch.Tensor:
        heads = self.head_map(layer)
        scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()[:, heads]) * layer.scale
        weights = torch.exp(self.capped(layer, scores)).masked_fill(~seen, 0)
        return self.weighed(weights / weights.sum(-1, keepdim=True), v[:, heads])


class TakesTokensForNeighbours(PlainAttention):
    """Hands the address of the first token to a kernel that counts on from there."""

    def attend(self, plan: Any, layer: AttentionLayer, q: Any, k: Any, v: Any, out: Any) -> None:
        size = layer.num_heads * layer.head_size
        room = q.untyped_storage().nbytes() // q.element_size() - q.storage_offset()
        tokens = min(len(q), room // size)
        dense = q.clone()
        dense[:tokens] = q.as_strided((tokens, *q.shape[1:]), (size, layer.head_size, 1))
        super().attend(plan, layer, dense, k, v, out)


class PlansLate(PlainAttention):
    """Odd, and right: `plan` remembers the batch, and the first `attend` does the work."""

    def plan(self, batch: AttentionBatch) -> Any:
        if len(batch.host.q_lens) > self.most_rows:
            raise BatchFault("too many rows")
        plan = Plan([], batch.out_slots)
        self.waiting = {**getattr(self, "waiting", {}), id(plan): (plan, batch)}
        return plan

    def attend(self, plan: Any, layer: AttentionLayer, *rest: Any) -> None:
        if not plan.spans:
            plan.spans = super().plan(self.waiting.pop(id(plan))[1]).spans
        super().attend(plan, layer, *rest)


class InFloat64(PlainAttention):
    """Odd, and right: it computes in float64, from the last row to the first."""

    def one_row(self, layer: AttentionLayer, q: Any, k: Any, v: Any, seen: torch.Tensor) -> torch.Tensor:
        heads = self.head_map(layer)
        scores = torch.einsum("qhd,khd->hqk", q.double(), k.double()[:, heads]) * layer.scale
        weights = torch.softmax(self.capped(layer, scores).masked_fill(~seen, -torch.inf), dim=-1)
        return torch.einsum("hqk,khd->qhd", weights, v[:, heads].double())

    def plan(self, batch: AttentionBatch) -> Plan:
        plan = super().plan(batch)
        return Plan(plan.spans[::-1], plan.out_slots)


class RefusesMixed(PlainAttention):
    def plan(self, batch: AttentionBatch) -> Plan:
        if batch.mode.value == "mixed":
            raise BatchFault("no mixed batches")
        return super().plan(batch)


class FreezesTheFirstBatch(PlainAttention):
    """Looks up the graph's first batch, and takes it for all."""

    def in_graph(self, plan: Any) -> None:
        if not plan.spans:
            super().in_graph(plan)


class RefreshReadsLengths(PlainAttention):
    """`item` waits for the device."""

    def refresh(self, plan: Any, batch: AttentionBatch) -> None:
        assert int(batch.kv_lens.max()) >= 1
        super().refresh(plan, batch)


class TrustsUpperBoundsInGraphs(PlainAttention):
    def in_graph(self, plan: Any) -> None:
        super().in_graph(plan)
        lengths = plan.batch.host.kv_lens.tolist()
        plan.spans = [(*span[:3], length) for span, length in zip(plan.spans, lengths, strict=True)]


class PadsIntoTheLastSlot(PlainAttention):
    """Writes padding where the last real token stands, one slot further."""

    def in_graph(self, plan: Any) -> None:
        super().in_graph(plan)
        slots = plan.batch.out_slots
        plan.out_slots = {name: torch.where(one == 0, one.max() + 1, one) for name, one in slots.items()}


class GraphsShareAPlan(PlainAttention):
    """Keeps one plan for all graphs."""

    only: Plan | None = None

    def plan_graph(self, batch: AttentionBatch, shape: GraphShape) -> Plan:
        self.only = self.only or super().plan_graph(batch, shape)
        return self.only
