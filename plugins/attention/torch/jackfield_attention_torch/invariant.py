"""Attention of which each token's result has the same bits in every batch, chunk and phase.

A query's keys are taken in tiles that are counted from the start of its sequence. All products have the shapes of a tile
and of a few sizes of query blocks, which were tried when the backend was made; the largest score is exact in any order;
what the tiles give is added one after the other, and a tile that a query does not see adds exactly nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch.nn import functional

from jackfield.hookspecs import (
    AttentionBackend,
    AttentionBatch,
    AttentionContext,
    AttentionLayer,
    AttentionPlan,
    KVTensors,
)
from jackfield.layers.row_blocks import agreeing_sizes, probe_row
from jackfield_attention_torch.pages import LayerPages
from jackfield_attention_torch.plan import Sight, sight_of
from jackfield_attention_torch.tiles import TILE, Piece, TiledPlan, TiledView, make_tiled_plan, seen

_BLOCK_SIZES = (4, 8, 16, 32, 64, 128, 256)  # queries (tokens times heads that share a KV head) of one product
_BATCH_SIZES = (1, 2, 3, 8, 33)  # numbers of products at once that are tried


Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class InvariantAttention(AttentionBackend):
    """RuntimeError when it is made, if products of this machine cannot be made independent of their batch."""

    def __init__(self, context: AttentionContext) -> None:
        self._tables = context.tables
        self._sights = {layer.id: sight_of(layer) for layer in context.layers}
        self._distinct_sights = tuple(dict.fromkeys(self._sights.values()))
        share = max(layer.num_heads // layer.num_kv_heads for layer in context.layers)
        sizes = list(_BLOCK_SIZES)
        while sizes[-1] < share:
            sizes.append(2 * sizes[-1])
        shapes = {(layer.head_size, layer.v_head_size) for layer in context.layers}
        self._sizes = {shape: _agreeing(*shape, sizes, context.device) for shape in shapes}
        self._most_queries = max(1, min(kept[-1] for kept in self._sizes.values()) // share)
        self._kv: Mapping[str, KVTensors] = {}

    def bind(self, kv: Mapping[str, KVTensors]) -> None:
        self._kv = kv

    def plan(self, batch: AttentionBatch) -> TiledPlan:
        return make_tiled_plan(batch, self._tables, self._distinct_sights, self._most_queries)

    def attend(
        self,
        plan: AttentionPlan,
        layer: AttentionLayer,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        out: torch.Tensor,
    ) -> None:
        plan = cast(TiledPlan, plan)
        kv = LayerPages(self._kv[layer.group], layer, q.dtype)
        if k is not None and v is not None:
            kv.write(plan.out_slots[layer.group], k, v)
        sight = self._sights[layer.id]
        sizes = self._sizes[layer.head_size, layer.v_head_size]
        for piece in plan.pieces:
            view = piece.views[sight]
            keys, values = kv.read(view.slots)
            queries = q.index_select(0, piece.tokens)
            found = _attention(layer, piece, view, sight, queries, keys.float(), values.float(), sizes)
            out.index_copy_(0, piece.tokens, found.to(out.dtype))


def _attention(
    layer: AttentionLayer,
    piece: Piece,
    view: TiledView,
    sight: Sight,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sizes: tuple[int, ...],
) -> torch.Tensor:
    """q [rows * q_len, heads, head], k, v float32 [rows, kv_heads, tiles * TILE, head or v_head] -> float32 as q.

    In float32 whatever the run's dtype: a product rounded to fewer bits before the softmax would lose accuracy.
    """
    rows, q_len = piece.positions.shape
    kv_heads, share = layer.num_kv_heads, layer.num_heads // layer.num_kv_heads
    tiles, count = view.slots.shape[1] // TILE, q_len * share
    size = next(size for size in sizes if size >= count)
    queries = q.view(rows, q_len, kv_heads, share, -1).permute(0, 2, 1, 3, 4).reshape(rows, kv_heads, 1, count, -1)
    queries = functional.pad(queries.float(), (0, 0, 0, size - count)).expand(-1, -1, tiles, -1, -1)

    # [rows * kv_heads * tiles, ...] for the products, [rows, kv_heads, tiles, size, TILE] for what lies between
    scores = _scores(queries.reshape(-1, size, layer.head_size), k.reshape(-1, TILE, layer.head_size))
    scores = scores.view(rows, kv_heads, tiles, size, TILE).mul_(layer.scale)
    if layer.soft_cap is not None:
        scores.div_(layer.soft_cap).tanh_().mul_(layer.soft_cap)
    visible = seen(piece, view, sight).view(rows, q_len, tiles, TILE).transpose(1, 2)
    visible = visible.repeat_interleave(share, dim=2) if share > 1 else visible
    scores[:, :, :, :count].masked_fill_(~visible[:, None], -torch.inf)

    weights = scores.sub_(scores.amax(dim=(2, 4), keepdim=True)).exp_()
    parts = _mixed(weights.view(-1, size, TILE), v.reshape(-1, TILE, layer.v_head_size))
    parts = parts.view(rows, kv_heads, tiles, size, layer.v_head_size)
    sums = weights.sum(dim=-1)
    found, total = torch.zeros_like(parts[:, :, 0]), torch.zeros_like(sums[:, :, 0])
    for tile in range(tiles):
        found += parts[:, :, tile]
        total += sums[:, :, tile]
    found /= total[..., None]
    found = found[:, :, :count].view(rows, kv_heads, q_len, share, -1).permute(0, 2, 1, 3, 4)
    return found.reshape(rows * q_len, layer.num_heads, layer.v_head_size)


def _scores(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return torch.bmm(queries, keys.transpose(1, 2))


def _mixed(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.bmm(weights, values)


def _agreeing(head_size: int, v_head_size: int, sizes: list[int], device: str) -> tuple[int, ...]:
    """The query blocks for which both products give a row the same bits at every place, in every number of products."""
    keys = probe_row(TILE * head_size, dtype=torch.float32, device=device, seed=1).view(1, TILE, head_size)
    values = probe_row(TILE * v_head_size, dtype=torch.float32, device=device, seed=2).view(1, TILE, v_head_size)
    query = probe_row(head_size, dtype=torch.float32, device=device, seed=3)
    weight = probe_row(TILE, dtype=torch.float32, device=device, seed=4).abs()

    def both(product: Product, matrix: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        def batches(block: torch.Tensor) -> torch.Tensor:
            made = [
                product(block.expand(n, -1, -1).contiguous(), matrix.expand(n, -1, -1).contiguous())
                for n in _BATCH_SIZES
            ]
            return torch.cat([one.flatten(0, 1) for one in made])

        return batches

    for_scores = agreeing_sizes(both(_scores, keys), query, sizes)
    for_values = agreeing_sizes(both(_mixed, values), weight, sizes)
    kept = tuple(size for size in for_scores if size in for_values)
    if not kept:
        raise RuntimeError(
            f"the matrix products of this machine give equal queries different results (blocks that do for scores: "
            f"{for_scores}, for values: {for_values}), so attention cannot be deterministic here; another number of threads "
            "(OMP_NUM_THREADS) may do"
        )
    return kept
