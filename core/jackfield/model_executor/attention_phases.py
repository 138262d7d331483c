"""The attention backends of a run: made once, bound to the KV, and chosen batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from jackfield.hookspecs import (
    AttentionBackend,
    AttentionBatch,
    AttentionLimits,
    AttentionMode,
    AttentionPlan,
    KVTensors,
    ModelShape,
    WorkerStack,
)
from jackfield.model_executor.dtypes import dtype_name
from jackfield.model_executor.kv_writes import KVWrites
from jackfield.model_executor.workspace import Workspace

PHASES = ("prefill", "decode")


class AttentionPhases:
    """The prefill and the decode backend, which may be one object. decode_name: the latter's plugin."""

    def __init__(
        self,
        stack: WorkerStack,
        shape: ModelShape,
        *,
        tables: Mapping[str, torch.Tensor],
        page_size: int,
        limits: AttentionLimits,
        device: torch.device,
        dtype: torch.dtype,
        kv_dtype: torch.dtype | None = None,
        deterministic: bool = False,
    ) -> None:
        fields: dict[str, Any] = {
            "layers": shape.layers,
            "groups": shape.groups,
            "layouts": {group.name: stack.layout for group in shape.groups},
            "page_size": page_size,
            "tables": tables,
            "limits": limits,
            "device": str(device),
            "dtype": dtype_name(dtype),
            "kv_dtype": None if kv_dtype in (None, dtype) else dtype_name(kv_dtype),
            "workspace": Workspace(device),
            "deterministic": deterministic,
        }
        self.decode_name = stack.attention["decode"][0]
        makers = {phase: stack.attention[phase][1] for phase in PHASES}
        if makers["prefill"] == makers["decode"]:
            self._prefill = self._decode = makers["prefill"]({**fields, "phases": PHASES})
        else:
            self._prefill = makers["prefill"]({**fields, "phases": ("prefill",)})
            self._decode = makers["decode"]({**fields, "phases": ("decode",)})
        self._kv: Mapping[str, KVTensors] = {}
        self._mixed = "mixed" in stack.attention_features.get("prefill", frozenset())

    @property
    def decode(self) -> AttentionBackend:
        """The backend of decode batches."""
        return self._decode

    def bind(self, kv: Mapping[str, KVTensors]) -> None:
        """Hand both backends the KV tensors."""
        self._kv = kv
        self._prefill.bind(kv)
        if self._decode is not self._prefill:
            self._decode.bind(kv)

    def writes(self, batch: AttentionBatch) -> KVWrites:
        """Where this batch's keys and values go, for operators that write them."""
        return KVWrites(self._kv, batch.out_slots)

    def plan(self, batch: AttentionBatch) -> tuple[AttentionBackend, AttentionPlan]:
        """The backend that serves this batch, and its plan. Decode rows among longer ones go with them: EXTEND takes
        rows of any length, and a backend that declares "mixed" is told, so that it may treat them apart."""
        if batch.mode is AttentionMode.DECODE:
            return self._decode, self._decode.plan(batch)
        if batch.mode is AttentionMode.MIXED and not self._mixed:
            batch = replace(batch, mode=AttentionMode.EXTEND)
        return self._prefill, self._prefill.plan(batch)
