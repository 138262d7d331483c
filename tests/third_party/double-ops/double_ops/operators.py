"""The operators. `_linear` and `_norm` give float64; what leaves an operator is in the run's dtype again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from jackfield.hookspecs import DenseWeight, ForwardContext, Ops, PostAttention, PreAttention, SamplingRows
from jackfield.layers.noise import uniforms

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
}


class DoubleOps(Ops):
    def pack(self, weight: DenseWeight) -> torch.Tensor:
        if weight.encoding != "plain":
            raise ValueError(f"ops 'double' takes plain weights; {weight.encoding!r} is not in its manifest")
        return weight.data.double()

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return _linear(x, weight, bias).to(x.dtype)

    def norm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = x if residual is None else x + residual
        return _norm(total, weight, eps).to(x.dtype), total

    def embedding(self, ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return functional.embedding(ids, table)

    def pre_attention(
        self, block: PreAttention, x: torch.Tensor, residual: torch.Tensor | None, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor]:
        layer, n = block.layer, x.shape[0]
        total = x if residual is None else x + residual
        qkv = _linear(_norm(total, block.norm.weight, block.norm.eps), block.qkv, block.qkv_bias)
        kv_heads, size = layer.num_kv_heads, layer.head_size
        q, k, v = torch.split(qkv, [layer.num_heads * size, kv_heads * size, kv_heads * layer.v_head_size], dim=-1)
        q, k = q.view(n, layer.num_heads, size), k.view(n, kv_heads, size)
        if block.q_norm is not None:
            q = _norm(q, block.q_norm.weight, block.q_norm.eps)
        if block.k_norm is not None:
            k = _norm(k, block.k_norm.weight, block.k_norm.eps)
        if block.rotary is not None:
            cos, sin = block.rotary.tables(ctx.positions)
            q, k = _turned(q, cos.double(), sin.double()), _turned(k, cos.double(), sin.double())
        return q.to(x.dtype), k.to(x.dtype), v.view(n, kv_heads, layer.v_head_size).to(x.dtype), total

    def post_attention(
        self, block: PostAttention, attended: torch.Tensor, residual: torch.Tensor, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor]:
        projected = ctx.all_reduce(_linear(attended, block.o, block.o_bias)).to(residual.dtype)
        if block.after_attention is not None:
            projected = _norm(projected, block.after_attention.weight, block.after_attention.eps).to(residual.dtype)
        total = projected + residual
        normed = _norm(total, block.norm.weight, block.norm.eps)
        gate, up = _linear(normed, block.gate_up, block.gate_up_bias).chunk(2, dim=-1)
        down = _linear(ACTIVATIONS[block.activation](gate) * up, block.down, block.down_bias)
        x = ctx.all_reduce(down)
        if block.after_mlp is not None:
            x = _norm(x, block.after_mlp.weight, block.after_mlp.eps)
        return x.to(residual.dtype), total

    def sample(self, logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
        largest, tokens = logits.max(dim=-1)
        for row in (rows.temperature > 0).nonzero().flatten().tolist():
            tokens[row] = _draw(logits[row] - largest[row], rows, row)
        return tokens.masked_fill(~torch.isfinite(largest), -1)


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return functional.linear(x.double(), weight, None if bias is None else bias.double())


def _norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.double()
    return wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps) * weight.double()


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Dimension i of the first half of those that turn goes with i of the second. x [n, heads, size], cos [n, turning / 2]"""
    cos, sin, half = cos[:, None], sin[:, None], cos.shape[-1]
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


def _draw(shifted: torch.Tensor, rows: SamplingRows, row: int) -> torch.Tensor:
    """One row's draw; its logits [vocab] less their largest."""
    temperature = rows.temperature[row].clamp_min(torch.finfo(torch.float32).tiny)
    weights = (shifted / temperature).exp()  # float32, as the contract's rounding of top-p wants
    ordered, order = weights.sort(descending=True, stable=True)
    before = ordered.cumsum(dim=-1, dtype=torch.float64)
    rank = torch.arange(len(weights), device=weights.device)
    dropped = (
        (before - ordered > before[-1] * rows.top_p[row]) | (rank >= rows.top_k[row]) | (ordered < rows.min_p[row])
    )
    kept = torch.zeros_like(weights).scatter_(0, order, ordered.masked_fill(dropped, 0.0)).double()
    noise = uniforms(rows.stream[row : row + 1], rank)[0]
    return (kept / noise.log()).argmin()
