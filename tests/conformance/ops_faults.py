"""Operator providers with one fault each. The correct one is the twin itself, in float64 and rounded at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import (
    DenseWeight,
    ForwardContext,
    KVWrite,
    Norm,
    Ops,
    PostAttention,
    PreAttention,
    SamplingRows,
)
from jackfield.layers.noise import uniforms
from jackfield.layers.quantization import decode
from jackfield.testing.ops_twin import ACTIVATIONS, norm, rotate


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What lies beyond the dtype's range becomes its largest number."""
    return x.clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype)


class PlainOps(Ops):
    """quantization   "int8": one scale a row; None: plain weights stay what they are"""

    most = 127.0

    def __init__(self, dtype: torch.dtype, quantization: str | None = None) -> None:
        self.dtype = dtype
        self.quantization = quantization

    def pack(self, weight: DenseWeight) -> Any:
        wide = (weight.data if weight.encoding == "plain" else decode(weight.encoding, weight.data)).double()
        if self.quantization is None:
            return wide
        scale = wide.abs().amax(dim=1, keepdim=True) / self.most
        return (wide / scale).round() * scale

    def export(self, packed: torch.Tensor) -> tuple[Mapping[str, Any], NDArray[np.uint8]]:
        return {"shape": list(packed.shape)}, packed.numpy().reshape(-1).view(np.uint8)

    def restore(self, header: Mapping[str, Any], data: NDArray[np.uint8]) -> Any:
        return torch.from_numpy(data.view(np.float64).reshape(header["shape"]).copy())

    def looks_up(self, packed: Any) -> bool:
        return True

    def linear(self, x: torch.Tensor, weight: Any, bias: torch.Tensor | None = None) -> torch.Tensor:
        return self.wide(x, weight, bias).to(self.dtype)

    def wide(self, x: torch.Tensor, weight: Any, bias: torch.Tensor | None) -> torch.Tensor:
        # row by row, so that a row depends on nothing else
        rows = [x[i : i + 1].double() @ weight.t() for i in range(len(x))]
        product = torch.cat([x.new_zeros(0, len(weight)).double(), *rows])
        return product if bias is None else product + bias.double()

    def norm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        normed, total = norm(x, weight, eps, residual)
        return normed.to(self.dtype), total.to(self.dtype)

    def embedding(self, ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return table[ids].to(self.dtype)

    def pre_attention(
        self, block: PreAttention, x: torch.Tensor, residual: torch.Tensor | None, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor]:
        q, k, v, total = self.before(block, x, residual, ctx)
        write = ctx.kv_write(block.layer)
        if write is None:
            return q, k, v, total
        self.write(write, k, v)
        return q, None, None, total

    def write(self, write: KVWrite, k: torch.Tensor, v: torch.Tensor) -> None:
        for pages, new in ((write.k, k), (write.v, v)):
            by_slot = pages.transpose(1, 2) if write.layout == "hnd-paged" else pages
            by_slot[write.slots // write.page_size, write.slots % write.page_size] = cast(new, pages.dtype)

    def before(
        self, block: PreAttention, x: torch.Tensor, residual: torch.Tensor | None, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        layer, n = block.layer, x.shape[0]
        normed, total = self.norm(x, block.norm.weight, block.norm.eps, residual)
        sizes = [layer.num_heads * layer.head_size, layer.num_kv_heads * layer.head_size]
        q, k, v = torch.split(
            self.wide(normed, block.qkv, block.qkv_bias), [*sizes, layer.num_kv_heads * layer.v_head_size], -1
        )
        q, k = q.view(n, -1, layer.head_size), k.view(n, -1, layer.head_size)
        if block.q_norm is not None:
            q, _ = norm(q, block.q_norm.weight, block.q_norm.eps)
        if block.k_norm is not None:
            k, _ = norm(k, block.k_norm.weight, block.k_norm.eps)
        rotary: Any = block.rotary
        q, k = self.rotate(q, rotary, ctx.positions), self.rotate(k, rotary, ctx.positions)
        return q.to(self.dtype), k.to(self.dtype), v.view(n, -1, layer.v_head_size).to(self.dtype), total

    def rotate(self, x: torch.Tensor, rotary: Any, positions: torch.Tensor) -> torch.Tensor:
        return rotate(x, rotary, positions)

    def post_attention(
        self, block: PostAttention, attended: torch.Tensor, residual: torch.Tensor, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor]:
        projected = self.after(ctx.all_reduce(self.linear(attended, block.o, block.o_bias)), block.after_attention)
        normed, total = self.norm(projected, block.norm.weight, block.norm.eps, residual)
        gate, up = self.wide(normed, block.gate_up, block.gate_up_bias).chunk(2, dim=-1)
        inner = (self.activate(block.activation, gate) * up).to(self.dtype)
        return self.after(ctx.all_reduce(self.linear(inner, block.down, block.down_bias)), block.after_mlp), total

    def after(self, x: torch.Tensor, behind: Norm | None) -> torch.Tensor:
        return x if behind is None else self.norm(x, behind.weight, behind.eps)[0]

    def activate(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([ACTIVATIONS[name](row[None]) for row in x])

    def sample(self, logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
        tokens = [self.draw(logits, rows, i) for i in range(len(logits))]
        return torch.tensor(tokens, dtype=torch.int64, device=logits.device)

    def draw(self, logits: torch.Tensor, rows: SamplingRows, i: int) -> int:
        row = logits[i].double()
        largest = row.max()
        if not torch.isfinite(largest):
            return -1
        if rows.temperature[i] == 0:
            return int((row == largest).nonzero()[0])
        probs = torch.softmax((row - largest) / rows.temperature[i].double().clamp_min(1e-300), dim=-1)
        kept = self.kept(probs, int(rows.top_k[i]), float(rows.top_p[i]), float(rows.min_p[i]))
        stream = rows.stream[i : i + 1]
        scores = torch.where(kept, probs, 0.0) / -uniforms(stream, torch.arange(len(row))).log()[0]
        return int(scores.argmax())

    def kept(self, probs: torch.Tensor, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
        order = probs.argsort(descending=True, stable=True)
        ordered = probs[order]
        before = ordered.cumsum(0) - ordered
        rank = torch.arange(len(probs))
        stays = (rank < top_k) & ((before <= top_p + 1e-12) | (rank == 0)) & (ordered >= min_p * ordered[0])
        return torch.zeros_like(stays).scatter(0, order, stays)


class ForgetsTheBias(PlainOps):
    def linear(self, x: torch.Tensor, weight: Any, bias: torch.Tensor | None = None) -> torch.Tensor:
        return super().linear(x, weight)


class ForgetsEps(PlainOps):
    def norm(self, x: Any, weight: Any, eps: float, residual: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
        return super().norm(x, weight, 0.0, residual)


class ReturnsXForTheSum(PlainOps):
    def norm(self, x: Any, weight: Any, eps: float, residual: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
        return super().norm(x, weight, eps, residual)[0], x


class KeepsOneBufferForLogits(PlainOps):
    def logits(self, x: torch.Tensor, weight: Any) -> torch.Tensor:
        found = super().logits(x, weight)
        kept = vars(self).setdefault("kept", {})
        return kept.setdefault(found.shape, found.clone()).copy_(found)  # type: ignore[no-any-return]


class QuantisesToThreeBits(PlainOps):
    most = 3.0


class RestoresInLowPrecision(PlainOps):
    def restore(self, header: Mapping[str, Any], data: NDArray[np.uint8]) -> Any:
        return super().restore(header, data).half().double()


class LooksUpItsNeighbour(PlainOps):
    def embedding(self, ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return super().embedding(ids - 1 if table.dtype is torch.float64 else ids, table)


class ShiftsTheTable(PlainOps):
    def embedding(self, ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return table.roll(1, 0)[ids]


class TurnsNeighbours(PlainOps):
    """The other order of rotary: dimension 2i with 2i + 1."""

    def rotate(self, x: torch.Tensor, rotary: Any, positions: torch.Tensor) -> torch.Tensor:
        half = rotary.size // 2
        order = [i // 2 + half * (i % 2) for i in range(rotary.size)] + list(range(rotary.size, x.shape[-1]))
        return rotate(x[..., order], rotary, positions)


class OneGeluForAll(PlainOps):
    def activate(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return super().activate("gelu_tanh" if name == "gelu" else name, x)


class ForgetsTheNormsBehind(PlainOps):
    def after(self, x: torch.Tensor, behind: Any) -> torch.Tensor:
        return x


class AttendsToNothing(PlainOps):
    """Takes all layers whatever the attention is."""

    def layers(self, layers: Any, x: Any, ctx: Any, backend: Any, plan: Any) -> tuple[torch.Tensor, torch.Tensor]:
        residual = None
        for layer in layers:
            *_, residual = self.pre_attention(layer.pre, x, residual, ctx)
            attended = x.new_zeros(len(x), layer.attention.num_heads * layer.attention.v_head_size)
            x, residual = self.post_attention(layer.post, attended, residual, ctx)
        assert residual is not None
        return x, residual


class ReducesOnce(PlainOps):
    def post_attention(self, block: Any, attended: Any, residual: Any, ctx: Any) -> tuple[torch.Tensor, torch.Tensor]:
        given = ctx.all_reduce
        ctx.all_reduce = lambda x: x
        x, total = super().post_attention(block, attended, residual, ctx)
        return given(x), total


class RoundsInBlocks(PlainOps):
    """The product of many rows is rounded otherwise than that of few."""

    def linear(self, x: torch.Tensor, weight: Any, bias: torch.Tensor | None = None) -> torch.Tensor:
        found = super().linear(x, weight, bias)
        return found if len(x) < 8 else found * (1 + torch.finfo(self.dtype).eps)


class UnpacksWrongly(PlainOps):
    """Takes the bytes of a packed weight for its values."""

    def pack(self, weight: DenseWeight) -> Any:
        if weight.encoding == "plain":
            return super().pack(weight)
        return weight.data[:, : weight.in_features].double().repeat(1, 2)[:, : weight.in_features]


class TakesTheLastOfEquals(PlainOps):
    def draw(self, logits: torch.Tensor, rows: SamplingRows, i: int) -> int:
        if rows.temperature[i] == 0:
            return int((logits[i] == logits[i].max()).nonzero()[-1])
        return super().draw(logits, rows, i)


class DrawsWithItsOwnNumbers(PlainOps):
    def draw(self, logits: torch.Tensor, rows: SamplingRows, i: int) -> int:
        rows.stream[i] += 1
        return super().draw(logits, rows, i)


class RenormalisesBetweenFilters(PlainOps):
    def kept(self, probs: torch.Tensor, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
        first = super().kept(probs, top_k, 1.0, 0.0)
        left = torch.where(first, probs, 0.0)
        return first & super().kept(left / left.sum(), top_k, top_p, min_p)


class TopKKeepsOneMore(PlainOps):
    def kept(self, probs: torch.Tensor, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
        return super().kept(probs, top_k + 1, top_p, min_p)


class DividesByTinyTemperatures(PlainOps):
    def draw(self, logits: torch.Tensor, rows: SamplingRows, i: int) -> int:
        if 0 < rows.temperature[i] < 1e-30:
            logits = logits / rows.temperature[i]
        return super().draw(logits, rows, i)


class HidesNaN(PlainOps):
    def draw(self, logits: torch.Tensor, rows: SamplingRows, i: int) -> int:
        return super().draw(logits.nan_to_num(), rows, i)


class OneStreamForAll(PlainOps):
    def draw(self, logits: torch.Tensor, rows: SamplingRows, i: int) -> int:
        rows.stream[i] = rows.stream[0]
        return super().draw(logits, rows, i)
