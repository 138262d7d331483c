"""The operators in plain torch, in the order in which a decoder layer uses them.

A provider with kernels of its own derives from `TorchOps` and overrides what it does better: the parts of the two blocks are
methods (`_heads`, `_gated`), and what is left plain works on any device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from jackfield.hookspecs import DenseWeight, ForwardContext, Ops, PostAttention, PreAttention, SamplingRows
from jackfield.layers.activations import ACTIVATIONS
from jackfield.layers.rotary import apply_rotary
from jackfield.layers.sampling import sample


class TorchOps(Ops):
    """Stateless; a packed weight is the plain [out, in] tensor itself."""

    _activations: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = ACTIVATIONS

    def pack(self, weight: DenseWeight) -> torch.Tensor:
        if weight.encoding != "plain":
            raise ValueError(f"{type(self).__name__} takes plain weights; {weight.encoding!r} is not in its manifest")
        return weight.data

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return functional.linear(x, weight, bias)

    def looks_up(self, packed: Any) -> bool:
        return isinstance(packed, torch.Tensor)

    def norm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = x if residual is None else x + residual
        wide = total.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + eps)
        # rounded before the weight, as the models were trained; a float32 weight (one with an offset) is applied before
        return (normed.to(weight.dtype) * weight).to(x.dtype), total

    def embedding(self, ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return functional.embedding(ids, table)

    def pre_attention(
        self, block: PreAttention, x: torch.Tensor, residual: torch.Tensor | None, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor]:
        normed, residual = self.norm(x, block.norm.weight, block.norm.eps, residual)
        q, k, v = self._heads(block, self.linear(normed, block.qkv, block.qkv_bias), ctx)
        return q, k, v, residual

    def _heads(
        self, block: PreAttention, qkv: torch.Tensor, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """What the projections gave, [n, q, k and v side by side], as normed and turned heads q, k, v."""
        layer, n = block.layer, qkv.shape[0]
        q, k, v = torch.split(
            qkv,
            [
                layer.num_heads * layer.head_size,
                layer.num_kv_heads * layer.head_size,
                layer.num_kv_heads * layer.v_head_size,
            ],
            dim=-1,
        )
        q = q.view(n, layer.num_heads, layer.head_size)
        k = k.view(n, layer.num_kv_heads, layer.head_size)
        v = v.view(n, layer.num_kv_heads, layer.v_head_size)
        if block.q_norm is not None:
            q, _ = self.norm(q, block.q_norm.weight, block.q_norm.eps)
        if block.k_norm is not None:
            k, _ = self.norm(k, block.k_norm.weight, block.k_norm.eps)
        if block.rotary is not None:
            cos, sin = block.rotary.tables(ctx.positions)
            q, k = apply_rotary(q, cos, sin), apply_rotary(k, cos, sin)
        return q, k, v

    def post_attention(
        self, block: PostAttention, attended: torch.Tensor, residual: torch.Tensor, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor]:
        projected = ctx.all_reduce(self.linear(attended, block.o, block.o_bias))
        if block.after_attention is not None:
            projected, _ = self.norm(projected, block.after_attention.weight, block.after_attention.eps)
        normed, residual = self.norm(projected, block.norm.weight, block.norm.eps, residual)
        inner = self._gated(block.activation, self.linear(normed, block.gate_up, block.gate_up_bias))
        x = ctx.all_reduce(self.linear(inner, block.down, block.down_bias))
        if block.after_mlp is not None:
            x, _ = self.norm(x, block.after_mlp.weight, block.after_mlp.eps)
        return x, residual

    def _gated(self, activation: str, gate_up: torch.Tensor) -> torch.Tensor:
        """[n, gate and up side by side] -> [n, inner]."""
        gate, up = gate_up.chunk(2, dim=-1)
        return self._activations[activation](gate) * up

    def sample(self, logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
        return sample(logits, rows)
