"""What model code sees of one forward: positions, operators, and attention through the chosen backend."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from jackfield.hookspecs import (
    AttentionBackend,
    AttentionLayer,
    AttentionPlan,
    KVWrite,
    LayerBlocks,
    Ops,
    PostAttention,
    PreAttention,
)
from jackfield.layers.one_by_one import layers_one_by_one
from jackfield.model_executor.kv_writes import KVWrites


class BatchContext:
    """The `ForwardContext` of one batch on one rank. `attend` hides which backend serves it, and its plan.

    writes: where operators may write keys and values; None: nowhere, attention does.
    """

    __slots__ = ("_backend", "_plan", "_writes", "ops", "positions", "token_types")

    def __init__(
        self,
        positions: torch.Tensor,
        ops: Ops,
        backend: AttentionBackend,
        plan: AttentionPlan,
        token_types: torch.Tensor | None = None,
        writes: KVWrites | None = None,
    ) -> None:
        self.positions = positions
        self.token_types = token_types
        self.ops = ops
        self._backend = backend
        self._plan = plan
        self._writes = writes

    def layers(self, layers: Sequence[LayerBlocks], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        done = self.ops.layers(layers, x, self, self._backend, self._plan)
        return layers_one_by_one(layers, x, self) if done is None else done

    def attend(
        self, layer: AttentionLayer, q: torch.Tensor, k: torch.Tensor | None, v: torch.Tensor | None
    ) -> torch.Tensor:
        out = torch.empty((q.shape[0], layer.num_heads, layer.v_head_size), dtype=q.dtype, device=q.device)
        self._backend.attend(self._plan, layer, q, k, v, out)
        return out.flatten(1)

    def kv_write(self, layer: AttentionLayer) -> KVWrite | None:
        return None if self._writes is None else self._writes.of(layer)

    def pre_attention(
        self, block: PreAttention, x: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor]:
        return self.ops.pre_attention(block, x, residual, self)

    def post_attention(
        self, block: PostAttention, attended: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.ops.post_attention(block, attended, residual, self)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return x  # one rank: the sum over ranks is the part itself
