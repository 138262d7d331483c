"""The operators that FlashInfer has kernels for, over the plain ones of the core."""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from jackfield.hookspecs import ForwardContext, Norm, PostAttention, PreAttention, Rotary, SamplingRows
from jackfield.layers.rotary import RotaryTable
from jackfield.layers.sampling import groups_of, sample_on_device
from jackfield.layers.sampling_filters import drop_by_order, drop_top
from jackfield.layers.torch_ops import TorchOps
from jackfield_ops_flashinfer.parts import ACTIVATIONS, MOST_LARGEST, PARTS, ROTARY_HEADS

_DTYPES = (torch.float16, torch.bfloat16)


class FlashInferOps(TorchOps):
    """Between the layers of a model, x and the residual are changed in place: they are this provider's own from the first layer
    on, where the residual is copied. `norm` changes nothing that it is given. fused: of PARTS."""

    def __init__(self, fused: frozenset[str] = frozenset(PARTS)) -> None:
        self._fused = fused
        self._library: Any = importlib.import_module("flashinfer")

    # --- norms ---

    def norm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self._can_norm(x, weight):
            return super().norm(x, weight, eps, residual)
        total = x if residual is None else x + residual
        return self._library.rmsnorm(total, weight, eps), total

    def _add_norm(self, x: torch.Tensor, norm: Norm, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As `norm`, [n, hidden], in the memory of x and residual."""
        if not self._can_norm(x, norm.weight) or not x.is_contiguous():
            return self.norm(x, norm.weight, norm.eps, residual)
        self._library.fused_add_rmsnorm(x, residual, norm.weight, norm.eps)
        return x, residual

    def _can_norm(self, x: torch.Tensor, weight: torch.Tensor) -> bool:
        """A float32 weight beside x of 16 bits is what the kernels would misread."""
        return "norm" in self._fused and x.dtype in _DTYPES and weight.dtype == x.dtype and x.numel() > 0

    # --- the two sides of attention ---

    def pre_attention(
        self, block: PreAttention, x: torch.Tensor, residual: torch.Tensor | None, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor]:
        if residual is None:
            normed, _ = self.norm(x, block.norm.weight, block.norm.eps)
            residual = x.clone()  # what enters the first layer is the caller's
        else:
            normed, residual = self._add_norm(x, block.norm, residual)
        q, k, v = self._heads(block, self.linear(normed, block.qkv, block.qkv_bias), ctx)
        return q, k, v, residual

    def _heads(
        self, block: PreAttention, qkv: torch.Tensor, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        rotary, layer = block.rotary, block.layer
        if rotary is None or not self._can_turn(qkv, layer.head_size):
            return super()._heads(block, qkv, ctx)
        positions, cache = _angles(rotary, ctx.positions)
        if not _turns(layer.head_size, cache.shape[1]):
            return super()._heads(block, qkv, ctx)
        n, head = qkv.shape[0], layer.head_size
        sizes = [layer.num_heads * head, layer.num_kv_heads * head, layer.num_kv_heads * layer.v_head_size]
        q, k, v = torch.split(qkv, sizes, dim=-1)
        if block.q_norm is not None:
            q = self.norm(q.view(n, -1, head), block.q_norm.weight, block.q_norm.eps)[0].view(n, -1)
        if block.k_norm is not None:
            k = self.norm(k.view(n, -1, head), block.k_norm.weight, block.k_norm.eps)[0].view(n, -1)
        # in place: in the product, which is nobody else's, or in what the norms gave
        self._library.apply_rope_with_cos_sin_cache_inplace(positions, q, k, head, cache, is_neox=True)
        return q.view(n, -1, head), k.view(n, -1, head), v.view(n, -1, layer.v_head_size)

    def _can_turn(self, qkv: torch.Tensor, head_size: int) -> bool:
        return "rotary" in self._fused and qkv.dtype in _DTYPES and head_size in ROTARY_HEADS and qkv.shape[0] > 0

    def post_attention(
        self, block: PostAttention, attended: torch.Tensor, residual: torch.Tensor, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor]:
        projected = ctx.all_reduce(self.linear(attended, block.o, block.o_bias))
        if block.after_attention is not None:
            projected, _ = self.norm(projected, block.after_attention.weight, block.after_attention.eps)
        normed, residual = self._add_norm(projected, block.norm, residual)
        inner = self._gated(block.activation, self.linear(normed, block.gate_up, block.gate_up_bias))
        x = ctx.all_reduce(self.linear(inner, block.down, block.down_bias))
        if block.after_mlp is not None:
            x, _ = self.norm(x, block.after_mlp.weight, block.after_mlp.eps)
        return x, residual

    def _gated(self, activation: str, gate_up: torch.Tensor) -> torch.Tensor:
        name = ACTIVATIONS.get(activation)
        if name is None or "activation" not in self._fused or gate_up.dtype not in _DTYPES or not gate_up.numel():
            return super()._gated(activation, gate_up)
        found: torch.Tensor = getattr(self._library, name)(gate_up)
        return found

    # --- sampling ---

    def sample(self, logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
        if "top_k" not in self._fused:
            return super().sample(logits, rows)
        if rows.greedy:
            return sample_on_device(logits, rows)
        groups = rows.groups or groups_of(rows, logits.shape[-1])
        drop = partial(self._drop_top, most=groups.most_top_k)
        return sample_on_device(logits, replace(rows, groups=groups), drop=drop)

    def _drop_top(self, weights: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, *, most: int) -> None:
        """As `drop_top`; no top_k is above `most`."""
        if most > min(MOST_LARGEST, weights.shape[-1]):
            drop_top(weights, top_k, top_p)
            return
        largest, _ = self._library.top_k(weights, most, sorted=True)
        drop_by_order(weights, largest, top_k, top_p)


def _angles(rotary: Rotary, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(places, float32 [places, cosines and sines side by side]) as FlashInfer takes them: the core's table as it lies, or the
    rows of whatever else the model has."""
    if isinstance(rotary, RotaryTable):
        return positions, rotary.table.flatten(1)
    cos, sin = rotary.tables(positions)
    return torch.arange(len(positions), device=positions.device), torch.cat((cos, sin), dim=-1)


def _turns(head_size: int, rotary: int) -> bool:
    """Whether the kernel turns so many dimensions of a head; it goes over whole vectors of them."""
    return rotary <= head_size and rotary % (2 * ROTARY_HEADS[head_size]) == 0
