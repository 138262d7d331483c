"""Attention by FlashInfer: binds layers to pages, and runs what was planned. Plans stand in `plan` and `graph`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import torch

from jackfield.hookspecs import (
    AttentionBackend,
    AttentionBatch,
    AttentionContext,
    AttentionLayer,
    AttentionMode,
    AttentionPlan,
    GraphShape,
    HostLengths,
    KVTensors,
)
from jackfield_attention_flashinfer.graph import GraphPlan, Key
from jackfield_attention_flashinfer.layer_kind import kind_of
from jackfield_attention_flashinfer.limits import HEAD_SIZES
from jackfield_attention_flashinfer.plan import FlashInferPlan, Planner
from jackfield_attention_flashinfer.settings import Settings
from jackfield_attention_flashinfer.wrappers import Wrappers


class FlashInferAttention(AttentionBackend):
    """Pages are read where they lie. Raises ValueError for layers that the kernels do not have."""

    def __init__(self, context: AttentionContext, settings: Settings) -> None:
        for layer in context.layers:
            _check(layer)
        self._context = context
        self._kinds = {layer.id: kind_of(layer) for layer in context.layers}
        self._distinct = tuple(dict.fromkeys(self._kinds.values()))
        self._groups = tuple(dict.fromkeys(layer.group for layer in context.layers))
        self._wrappers = Wrappers(context, settings)
        self._planner = Planner(self._wrappers, context.tables, self._distinct, self._groups)
        self._pages: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._graph_indices: dict[Key, torch.Tensor] = {}
        # FlashInfer compiles a kernel when it first plans for it: here, and not for a request.
        if "prefill" in context.phases:
            for longest in (context.limits.max_tokens, 1):  # long rows may have kernels of their own
                self._planner.plan(self._one_token(AttentionMode.EXTEND, longest))
        if "decode" in context.phases:
            self._planner.plan(self._one_token(AttentionMode.DECODE, 1))

    def _one_token(self, mode: AttentionMode, max_q: int) -> AttentionBatch:
        """A batch of the dummy row, planned with the kernels for rows of max_q new tokens."""
        device = self._wrappers.device
        one = np.ones(1, dtype=np.int32)
        return AttentionBatch(
            mode=mode,
            rows=torch.zeros(1, dtype=torch.int32, device=device),
            q_starts=torch.arange(2, dtype=torch.int32, device=device),
            kv_lens=torch.ones(1, dtype=torch.int32, device=device),
            out_slots={group: torch.zeros(1, dtype=torch.int64, device=device) for group in self._groups},
            host=HostLengths(q_lens=one, kv_lens=one),
            max_q=max_q,
            max_kv=1,
        )

    def bind(self, kv: Mapping[str, KVTensors]) -> None:
        for layer in self._context.layers:
            source = layer.id if layer.kv_source is None else layer.kv_source
            self._pages[layer.id] = (kv[layer.group].of("k", source), kv[layer.group].of("v", source))

    def plan(self, batch: AttentionBatch) -> FlashInferPlan:
        return self._planner.plan(batch)

    def plan_graph(self, batch: AttentionBatch, shape: GraphShape) -> GraphPlan:
        tables, indices = self._context.tables, self._graph_indices
        return GraphPlan(batch, shape, self._wrappers, tables, self._distinct, self._groups, indices)

    def in_graph(self, plan: AttentionPlan) -> None:
        cast(GraphPlan, plan).follow()

    def refresh(self, plan: AttentionPlan, batch: AttentionBatch) -> None:
        cast(GraphPlan, plan).refresh(batch)

    def attend(
        self,
        plan: AttentionPlan,
        layer: AttentionLayer,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        out: torch.Tensor,
    ) -> None:
        planned = cast("FlashInferPlan | GraphPlan", plan)
        pages = self._pages[layer.id]
        if k is not None and v is not None:
            planned.writes[layer.group].store(pages, self._wrappers.layouts[layer.group], k, v)
        planned.wrapper(self._kinds[layer.id]).run(q, pages, out=out)


def _check(layer: AttentionLayer) -> None:
    sizes = ", ".join(map(str, HEAD_SIZES))
    if layer.head_size not in HEAD_SIZES:
        raise ValueError(f"layer {layer.id} has heads of size {layer.head_size}; attention.flashinfer has {sizes}")
    if layer.v_head_size != layer.head_size:
        raise ValueError(
            f"layer {layer.id} has keys of size {layer.head_size} and values of size {layer.v_head_size}; "
            "attention.flashinfer wants them alike: choose attention.triton or attention.torch"
        )
