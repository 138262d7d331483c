"""What the checks of a layer's two blocks are made of: its weights, and the blocks of the contract round them."""

from __future__ import annotations

from typing import ClassVar

import torch

from jackfield.hookspecs import AttentionLayer, Ops, PostAttention, PreAttention
from jackfield.testing.conformance.ops_weights import WeightConformance
from jackfield.testing.ops_twin import LayerWeights, PlainNorm, PlainRotary


class LayerConformance(WeightConformance):
    """Layers of the sizes `hidden` and `inner`."""

    hidden: ClassVar[int] = 64
    inner: ClassVar[int] = 96

    def weights(self, dtype: str, *, full: bool = True, activation: str = "silu", seed: int = 0) -> LayerWeights:
        """full: with biases, norms of q and k and after both blocks, and a rotary of part of a head."""
        layer = AttentionLayer(
            id=0, group="full", num_heads=4, num_kv_heads=2, head_size=16, v_head_size=24 if full else 16, scale=0.25
        )
        rows = layer.num_heads * 16 + layer.num_kv_heads * (16 + layer.v_head_size)
        number = iter(range(100 * seed + 1, 100 * seed + 100))

        def matrix(out: int, into: int) -> torch.Tensor:
            return self.randn(out, into, dtype=dtype, seed=next(number), scale=into**-0.5)

        def vector(size: int) -> torch.Tensor:
            return self.randn(size, dtype=dtype, seed=next(number), scale=0.3)

        def norm(size: int, eps: float) -> PlainNorm:
            return PlainNorm(weight=1 + vector(size), eps=eps)

        return LayerWeights(
            layer=layer,
            norm_in=norm(self.hidden, 1e-5),
            qkv=matrix(rows, self.hidden),
            qkv_bias=vector(rows) if full else None,
            q_norm=norm(16, 1e-6) if full else None,
            k_norm=norm(16, 1e-3) if full else None,
            rotary=PlainRotary(size=8 if full else 16),
            o=matrix(self.hidden, layer.num_heads * layer.v_head_size),
            o_bias=vector(self.hidden) if full else None,
            norm_out=norm(self.hidden, 1e-4),
            gate_up=matrix(2 * self.inner, self.hidden),
            gate_up_bias=vector(2 * self.inner) if full else None,
            down=matrix(self.hidden, self.inner),
            down_bias=vector(self.hidden) if full else None,
            activation=activation,
            after_attention=norm(self.hidden, 1e-3) if full else None,
            after_mlp=norm(self.hidden, 1e-2) if full else None,
        )

    def blocks(self, ops: Ops, given: LayerWeights) -> tuple[PreAttention, PostAttention]:
        return PreAttention(
            layer=given.layer,
            norm=given.norm_in,
            qkv=self.pack(ops, given.qkv),
            qkv_bias=given.qkv_bias,
            rotary=given.rotary,
            q_norm=given.q_norm,
            k_norm=given.k_norm,
        ), PostAttention(
            layer=given.layer,
            o=self.pack(ops, given.o),
            o_bias=given.o_bias,
            norm=given.norm_out,
            gate_up=self.pack(ops, given.gate_up),
            gate_up_bias=given.gate_up_bias,
            down=self.pack(ops, given.down),
            down_bias=given.down_bias,
            activation=given.activation,
            after_attention=given.after_attention,
            after_mlp=given.after_mlp,
        )
