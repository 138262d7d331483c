"""The operators: kernels where there are some, torch for the rest."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import triton

from jackfield.hookspecs import AttentionLayer, ForwardContext, KVWrite, Norm, PreAttention, Rotary, SamplingRows
from jackfield.layers.rotary import RotaryTable
from jackfield.layers.torch_ops import TorchOps
from jackfield_ops_triton.kernels import activation, heads, norm, sampling

KERNELS = ("norm", "rotary", "activation", "sampling")

_CORE_LAYOUTS = ("nhd-paged", "hnd-paged")
_NARROW_FROM = (8, 9)
"""Compute capability from which on Triton can make float8_e4m3fn."""


class TritonOps(TorchOps):
    """Stateless: nothing of it waits for the device, and all it launches depends on shapes alone.

    fused   those of `KERNELS` that are used
    """

    def __init__(self, fused: Iterable[str]) -> None:
        self._fused = frozenset(fused)

    def norm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if "norm" not in self._fused or not x.numel():
            return super().norm(x, weight, eps, residual)
        return norm.norm(x, weight, eps, residual)

    def _heads(
        self, block: PreAttention, qkv: torch.Tensor, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        if "rotary" not in self._fused or not qkv.numel():
            return super()._heads(block, qkv, ctx)
        layer = block.layer
        sizes = heads.Sizes(q=layer.num_heads, k=layer.num_kv_heads, head=layer.head_size, v_head=layer.v_head_size)
        pages = _pages(ctx.kv_write(layer))
        q, k = heads.heads(
            qkv,
            sizes,
            ctx.positions,
            angles=None if block.rotary is None else _angles(block.rotary, ctx.positions),
            q_norm=_weighted(block.q_norm),
            k_norm=_weighted(block.k_norm),
            pages=pages,
        )
        return q, k, None if pages is not None else _values(qkv, layer)

    def _gated(self, name: str, gate_up: torch.Tensor) -> torch.Tensor:
        if "activation" not in self._fused or not gate_up.numel():
            return super()._gated(name, gate_up)
        return activation.gated(name, gate_up)

    def sample(self, logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
        if "sampling" not in self._fused or not logits.numel():
            return super().sample(logits, rows)
        return sampling.sample(logits, rows)


def check_device(device: str) -> None:
    """Raises RuntimeError for one on which no kernel runs."""
    if torch.device(device).type != "cuda" and not triton.knobs.runtime.interpret:
        raise RuntimeError(
            f"ops.triton runs on CUDA, not on {device!r}; `jackfield conformance ops.triton --device cpu-interpreted` shows its "
            "kernels on a CPU"
        )


def _weighted(norm: Norm | None) -> heads.Weighted | None:
    return None if norm is None else (norm.weight, norm.eps)


def _angles(rotary: Rotary, positions: torch.Tensor) -> heads.Angles:
    """The whole table where there is one, so that nothing is gathered for each layer."""
    if isinstance(rotary, RotaryTable):
        cos, sin = rotary.table.unbind(1)
        return heads.Angles(cos=cos, sin=sin, by_position=True)
    cos, sin = rotary.tables(positions)
    if cos.stride() != sin.stride() or cos.stride(1) != 1:
        cos, sin = cos.contiguous(), sin.contiguous()
    return heads.Angles(cos=cos, sin=sin, by_position=False)


def _pages(write: KVWrite | None) -> heads.Pages | None:
    """None: keys and values are returned, because nobody said where they go or because they lie as no kernel writes them."""
    if write is None or write.layout not in _CORE_LAYOUTS or not _can_cast(write.k):
        return None
    k, v = write.k, write.v
    if write.layout == "hnd-paged":
        k, v = k.transpose(1, 2), v.transpose(1, 2)
    return heads.Pages(k=k, v=v, slots=write.slots)


def _can_cast(pages: torch.Tensor) -> bool:
    if pages.dtype.itemsize > 1:
        return True
    if pages.device.type == "cpu":
        return False  # the interpreter loses the carry where rounding eight bits makes a power of two
    return pages.dtype is not torch.float8_e4m3fn or torch.cuda.get_device_capability(pages.device) >= _NARROW_FROM


def _values(qkv: torch.Tensor, layer: AttentionLayer) -> torch.Tensor:
    """[n, kv_heads, v_head_size], a view."""
    width = layer.num_kv_heads * layer.v_head_size
    return qkv[:, -width:].view(-1, layer.num_kv_heads, layer.v_head_size)
