"""The slow twins of the operators, in float64: what stands before and after attention, written as the definition.

They take the plain weights that a provider packs, and know nothing of packing, batching or ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from jackfield.hookspecs import (
    AttentionBackend,
    AttentionBatch,
    AttentionLayer,
    AttentionPlan,
    ForwardContext,
    KVTensors,
    KVWrite,
    Ops,
)

ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
}


@dataclass(frozen=True, kw_only=True)
class PlainNorm:
    """A `Norm` as operators see it."""

    weight: torch.Tensor
    eps: float

    def __call__(self, x: torch.Tensor, ctx: ForwardContext, residual: torch.Tensor | None = None) -> torch.Tensor:
        return ctx.ops.norm(x, self.weight, self.eps, residual)[0]


@dataclass(frozen=True, kw_only=True)
class PlainRotary:
    """A `Rotary` that turns the first `size` dimensions of a head."""

    size: int

    def tables(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        frequency = 100.0 ** -(torch.arange(0, self.size, 2, device=positions.device) / self.size)
        angle = positions[:, None].float() * frequency
        return angle.cos(), angle.sin()


class TwinContext:
    """A `ForwardContext` for operators alone. `add`: what the other ranks bring to each sum, in the order of the sums. `write`:
    where keys and values go; None: nowhere that operators know of."""

    def __init__(
        self,
        ops: Ops,
        positions: torch.Tensor,
        add: list[torch.Tensor] | None = None,
        write: KVWrite | None = None,
    ) -> None:
        self.write = write
        self.ops = ops
        self.positions = positions
        self.token_types: torch.Tensor | None = None
        self.reduced: list[torch.Tensor] = []
        self._add = add

    def layers(self, layers: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        raise AssertionError("operators do not call layers: the model does")

    def attend(self, layer: AttentionLayer, q: Any, k: Any, v: Any) -> torch.Tensor:
        raise AssertionError("operators do not call attend: the model does")

    def kv_write(self, layer: AttentionLayer) -> KVWrite | None:
        return self.write

    def pre_attention(self, block: Any, x: torch.Tensor, residual: torch.Tensor | None) -> Any:
        return self.ops.pre_attention(block, x, residual, self)

    def post_attention(self, block: Any, attended: torch.Tensor, residual: torch.Tensor) -> Any:
        return self.ops.post_attention(block, attended, residual, self)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        self.reduced.append(x.clone())
        return x if self._add is None else x + self._add[len(self.reduced) - 1]


class OwnValues(AttentionBackend):
    """An attention of its own: each token's answer is its own value."""

    def bind(self, kv: Mapping[str, KVTensors]) -> None:
        pass

    def plan(self, batch: AttentionBatch) -> AttentionPlan:
        return AttentionPlan()

    def attend(self, plan: AttentionPlan, layer: AttentionLayer, q: Any, k: Any, v: Any, out: torch.Tensor) -> None:
        if v is None:
            raise AssertionError("only an attention that reads the provider's layout can find what it wrote")
        out.copy_(v.repeat_interleave(layer.num_heads // layer.num_kv_heads, dim=1))


def norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(normed, sum), float64."""
    total = x.double() if residual is None else (x + residual).double()
    return total * torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + eps) * weight.double(), total


def rotate(x: torch.Tensor, rotary: PlainRotary | None, positions: torch.Tensor) -> torch.Tensor:
    """x [n, heads, size]: dimension i of the first half turns with dimension i of the second."""
    if rotary is None:
        return x
    cos, sin = (table.double()[:, None] for table in rotary.tables(positions))
    half = rotary.size // 2
    a, b, rest = x[..., :half], x[..., half : rotary.size], x[..., rotary.size :]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), dim=-1)


@dataclass(kw_only=True)
class LayerWeights:
    """Plain weights [out, in] of what stands round one layer's attention, in the run's dtype. Biases or None."""

    layer: AttentionLayer
    norm_in: PlainNorm
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    q_norm: PlainNorm | None
    k_norm: PlainNorm | None
    rotary: PlainRotary | None
    o: torch.Tensor
    o_bias: torch.Tensor | None
    norm_out: PlainNorm
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None
    activation: str
    after_attention: PlainNorm | None = None
    after_mlp: PlainNorm | None = None

    def before(
        self, x: torch.Tensor, residual: torch.Tensor | None, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, k, v, residual."""
        layer, n = self.layer, x.shape[0]
        normed, total = norm(x, self.norm_in.weight, self.norm_in.eps, residual)
        sizes = [layer.num_heads * layer.head_size, layer.num_kv_heads * layer.head_size]
        q, k, v = torch.split(
            _linear(normed, self.qkv, self.qkv_bias), [*sizes, layer.num_kv_heads * layer.v_head_size], -1
        )
        q, k = q.view(n, -1, layer.head_size), k.view(n, -1, layer.head_size)
        if self.q_norm is not None:
            q, _ = norm(q, self.q_norm.weight, self.q_norm.eps)
        if self.k_norm is not None:
            k, _ = norm(k, self.k_norm.weight, self.k_norm.eps)
        q, k = rotate(q, self.rotary, positions), rotate(k, self.rotary, positions)
        return q, k, v.view(n, -1, layer.v_head_size), total

    def after(self, attended: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual."""
        projected = _linear(attended.double(), self.o, self.o_bias)
        if self.after_attention is not None:
            projected, _ = norm(projected, self.after_attention.weight, self.after_attention.eps)
        normed, total = norm(projected, self.norm_out.weight, self.norm_out.eps, residual.double())
        gate, up = _linear(normed, self.gate_up, self.gate_up_bias).chunk(2, dim=-1)
        x = _linear(ACTIVATIONS[self.activation](gate) * up, self.down, self.down_bias)
        if self.after_mlp is not None:
            x, _ = norm(x, self.after_mlp.weight, self.after_mlp.eps)
        return x, total


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return functional.linear(x, weight.double(), None if bias is None else bias.double())
