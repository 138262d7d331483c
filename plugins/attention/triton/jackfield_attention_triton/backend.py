"""Attention in Triton. It knows layers, pages and plans; nothing of models, requests or scheduling.

One way for all rows: the new keys and values are written to their slots, then every query reads its row's keys there, one
slot after the other as the table names them. So page sizes make no difference, and nothing is gathered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
import triton

from jackfield.hookspecs import (
    AttentionBackend,
    AttentionBatch,
    AttentionContext,
    AttentionLayer,
    AttentionPlan,
    GraphShape,
    KVTensors,
)
from jackfield.model_executor.dtypes import torch_dtype
from jackfield_attention_triton import launch
from jackfield_attention_triton.kernels.attend import attend_kernel
from jackfield_attention_triton.layers import LayerKind, block_of, kind_of
from jackfield_attention_triton.plan import Planner, TritonPlan
from jackfield_attention_triton.tuning import Tuning, tuning_for

_NATIVE_FP8 = (8, 9)  # compute capability that converts e4m3


class TritonAttention(AttentionBackend):
    """RuntimeError when it is made for a CPU outside of Triton's interpreter."""

    def __init__(self, context: AttentionContext, *, max_kv_splits: int = 64) -> None:
        device = torch.device(context.device)
        if device.type != "cuda" and isinstance(attend_kernel, triton.JITFunction):
            raise RuntimeError(
                f"attention.{context.instance} runs on CUDA, not on {device.type!r}; on a CPU its kernels can be tested in "
                "Triton's interpreter: jackfield conformance attention.triton --device cpu-interpreted"
            )
        capability, processors = _device_facts(device)
        itemsize = max(torch_dtype(name).itemsize for name in (context.dtype, context.kv_dtype or context.dtype))
        self._kinds = {layer.id: kind_of(layer) for layer in context.layers}
        tunings: dict[LayerKind, Tuning] = {
            kind: tuning_for(
                capability,
                processors,
                max(block_of(kind.head_size), block_of(kind.v_head_size)),
                itemsize,
                max_kv_splits,
            )
            for kind in self._kinds.values()
        }
        self._planner = Planner(tunings, context.workspace, device)
        self._tables = context.tables
        self._native_fp8 = capability is not None and capability >= _NATIVE_FP8
        self._upcast = capability is None and context.dtype == "bfloat16"
        self._pages: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def bind(self, kv: Mapping[str, KVTensors]) -> None:
        """Keeps, for each layer, the keys and values that it reads as [slots, kv_heads, size]."""
        self._pages = {
            layer: (group.of("k", layer).flatten(0, 1), group.of("v", layer).flatten(0, 1))
            for group in kv.values()
            for layer in group.group.layers
        }

    def plan(self, batch: AttentionBatch) -> TritonPlan:
        plan = self._planner.plan(batch)
        self.in_graph(plan)
        return plan

    def attend(
        self,
        plan: AttentionPlan,
        layer: AttentionLayer,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        out: torch.Tensor,
    ) -> None:
        plan = cast(TritonPlan, plan)
        keys, values = self._pages[layer.id if layer.kv_source is None else layer.kv_source]
        if k is not None and v is not None:
            launch.write(plan.out_slots[layer.group], k, v, keys, values)
        kind = self._kinds[layer.id]
        for one in plan.launches[kind]:
            launch.attend(
                *(plan, kind, one, layer, self._tables[layer.group], q, keys, values, out),
                native_fp8=self._native_fp8,
                upcast=self._upcast,
            )

    def plan_graph(self, batch: AttentionBatch, shape: GraphShape) -> TritonPlan:
        return self._planner.plan_graph(batch, shape)

    def in_graph(self, plan: AttentionPlan) -> None:
        """Finds the lengths of splits from the batch's lengths as they stand on the device."""
        plan = cast(TritonPlan, plan)
        for kind, launches in plan.launches.items():
            for one in launches:
                if one.splits is not None:
                    launch.find_split_length(plan, kind, one)

    def refresh(self, plan: AttentionPlan, batch: AttentionBatch) -> None:
        """Nothing on the host depends on the batch: `in_graph` looks at its tensors."""


def _device_facts(device: torch.device) -> tuple[tuple[int, int] | None, int]:
    """Compute capability, None for the interpreter, and the number of multiprocessors."""
    if device.type != "cuda":
        return None, 1
    return torch.cuda.get_device_capability(device), torch.cuda.get_device_properties(device).multi_processor_count
