"""`CpuOps`: the operators by the native library, a call for each and one for each block round attention."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import (
    AttentionBackend,
    AttentionPlan,
    DenseWeight,
    ForwardContext,
    LayerBlocks,
    Ops,
    PostAttention,
    PreAttention,
    SamplingRows,
)
from jackfield.layers.sampling import sample
from jackfield_ops_cpu.blocks import (
    ALL_STEPS,
    KEEP_ROWS,
    LEAVE,
    MLP,
    PROJECT,
    Kept,
    PostBlock,
    PreBlock,
    check_vector,
    norm_struct,
)
from jackfield_ops_cpu.layers import NativeLayers
from jackfield_ops_cpu.library import library
from jackfield_ops_cpu.mixed import MixedWeight, export_mixed, pack_mixed, restore_mixed
from jackfield_ops_cpu.quantized import FORMS, W8A8_INT8, look_up, looks_up, pack_blocks, pack_int8
from jackfield_ops_cpu.rotary_angles import RotaryAngles
from jackfield_ops_cpu.weights import (
    SCALARS,
    PackedWeight,
    export_weight,
    is_dense,
    look_up_dense,
    pack_dense,
    restore_weight,
)


class CpuOps(Ops):
    """dtype: of the run, which activations have; threads: of the native pool, the caller's included.

    alone    there is one rank, so that nothing has to be summed between the steps of a block
    quantization   of plain weights: None or "w8a8_int8"
    """

    def __init__(
        self, dtype: torch.dtype, *, threads: int, alone: bool = True, quantization: str | None = None
    ) -> None:
        if quantization not in (None, W8A8_INT8):
            raise ValueError(f"ops 'cpu' quantises to {W8A8_INT8}, not to {quantization!r}")
        self.dtype = dtype
        self.threads = threads
        self._alone = alone
        self._quantization = quantization
        self._scalar = SCALARS[dtype]
        self._native = library()
        self._before, self._after = self._native.jf_pre_attention, self._native.jf_post_attention
        self._angles = RotaryAngles()
        self._layers = NativeLayers(dtype, self._scalar, threads)
        self._pre: dict[int, PreBlock] = {}
        self._post: dict[int, PostBlock] = {}
        self._made: Kept | None = None  # the last result of post_attention
        self._summed: Kept | None = None  # and of pre_attention

    # -- weights

    def pack(self, weight: DenseWeight) -> PackedWeight:
        if weight.encoding in FORMS:
            return pack_blocks(weight, self.dtype, self.threads)
        if weight.encoding != "plain":
            raise ValueError(
                f"ops 'cpu' packs plain and {', '.join(FORMS)}; {weight.encoding!r} is not in its manifest"
            )
        if self._quantization is not None:
            return pack_int8(weight.data, self.dtype, self.threads)
        return pack_dense(weight.data, self.threads)

    def pack_mixed(self, parts: Sequence[DenseWeight]) -> PackedWeight | None:
        return pack_mixed(parts, self.dtype, self.threads)

    def looks_up(self, packed: PackedWeight) -> bool:
        return is_dense(packed) or looks_up(packed)

    def export(self, packed: PackedWeight) -> tuple[Mapping[str, Any], NDArray[np.uint8]]:
        return export_mixed(packed) if isinstance(packed, MixedWeight) else export_weight(packed)

    def restore(self, header: Mapping[str, Any], data: NDArray[np.uint8]) -> PackedWeight:
        return restore_mixed(header, data) if "parts" in header else restore_weight(header, data)

    def packing(self) -> str:
        return "tiles-1"  # the same at every level of instructions

    # -- single operators

    def linear(self, x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None = None) -> torch.Tensor:
        return self._linear(x, weight, bias, self.dtype)

    def logits(self, x: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
        return self._linear(x, weight, None, torch.float32)

    def _linear(
        self, x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None, dtype: torch.dtype
    ) -> torch.Tensor:
        x = self._rows(x, weight.columns)
        if bias is not None:
            check_vector(bias, SCALARS[dtype], weight.rows)
        n = x.shape[0]
        out = torch.empty((n, weight.rows), dtype=dtype)
        if n:
            self._native.jf_linear(
                weight.address,
                x.data_ptr(),
                self._scalar,
                n,
                weight.columns,
                None if bias is None else bias.data_ptr(),
                out.data_ptr(),
                SCALARS[dtype],
                self.threads,
            )
        return out

    def norm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if x.dim() != 2:
            flat = None if residual is None else residual.reshape(-1, x.shape[-1])
            normed, total = self.norm(x.reshape(-1, x.shape[-1]), weight, eps, flat)
            return normed.view(x.shape), x if residual is None else total.view(x.shape)
        n, size = x.shape
        x = self._rows(x, size)
        normed = torch.empty_like(x)
        total, old, new = x, None, None
        if residual is not None:
            total = torch.empty_like(x)
            old, new = self._rows(residual, size, n).data_ptr(), total.data_ptr()
        if n:
            norm = ctypes.byref(norm_struct(weight, eps, self._scalar, size))
            self._native.jf_norm(x.data_ptr(), old, new, normed.data_ptr(), self._scalar, norm, n, size, self.threads)
        return normed, total

    def embedding(self, ids: torch.Tensor, table: torch.Tensor | PackedWeight) -> torch.Tensor:
        rows = table.rows if isinstance(table, PackedWeight) else table.shape[0]
        if ids.shape[0]:
            numbers = ids.numpy()
            if numbers.min() < 0 or numbers.max() >= rows:
                raise IndexError(f"token ids {numbers.min()} to {numbers.max()} are not all below {rows}")
        if ids.dtype is not torch.int64:  # the library reads eight bytes of each
            ids = ids.long()
        if isinstance(table, PackedWeight):
            if is_dense(table):
                return look_up_dense(ids.contiguous(), table, self.dtype, self.threads)
            return look_up(ids.contiguous(), table, self.dtype, self.threads)
        out = torch.empty((ids.shape[0], table.shape[1]), dtype=table.dtype)
        if ids.shape[0]:
            ids, table = ids.contiguous(), table.contiguous()
            row_bytes = table.shape[1] * table.element_size()
            self._native.jf_embedding(
                ids.data_ptr(), ids.shape[0], table.data_ptr(), row_bytes, out.data_ptr(), self.threads
            )
        return out

    def sample(self, logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
        if not rows.greedy:
            return sample(logits, rows)
        n, vocab = logits.shape
        tokens = torch.empty(n, dtype=torch.int64)
        if n:
            logits = logits if logits.stride(1) == 1 else logits.contiguous()
            self._native.jf_arg_max(logits.data_ptr(), n, vocab, logits.stride(0), tokens.data_ptr(), self.threads)
        return tokens

    # -- blocks

    def layers(
        self,
        layers: Sequence[LayerBlocks],
        x: torch.Tensor,
        ctx: ForwardContext,
        backend: AttentionBackend,
        plan: AttentionPlan,
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        if not self._alone:
            return None
        return self._layers.run(layers, x, ctx, self._angles, backend, plan)

    def pre_attention(
        self, block: PreAttention, x: torch.Tensor, residual: torch.Tensor | None, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor]:
        known = self._pre.get(id(block))
        if known is None or known.block is not block or known.qkv is not block.qkv:
            known = self._pre[id(block)] = PreBlock(block, self._scalar)
        made = self._made
        old: int | None
        if made is not None and x is made.tensors[0] and residual is made.tensors[1] and made.width == known.hidden:
            # What the block before gave: nothing to check, and no memory to touch that the weights have driven out.
            n, (x_at, old) = made.rows, made.addresses
        else:
            x = self._rows(x, known.hidden)
            n, x_at = x.shape[0], x.data_ptr()
            old = None if residual is None else self._rows(residual, known.hidden, n).data_ptr()
        kept = known.results(n, self.dtype)
        q, k, v, total = kept.tensors
        q_at, k_at, v_at, total_at = kept.addresses
        if residual is None:
            total = x
        cos = sin = None
        stride = half = 0
        if block.rotary is not None:
            angles = self._angles.of(block.rotary, ctx)
            cos, sin, stride, half = angles.cos, angles.sin, angles.stride, angles.half
        if n:
            self._before(known.address, n, x_at, old, total_at, cos, sin, stride, half, q_at, k_at, v_at, self.threads)
        self._summed = kept if n <= KEEP_ROWS and residual is not None else None
        return q, k, v, total

    def post_attention(
        self, block: PostAttention, attended: torch.Tensor, residual: torch.Tensor, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor]:
        known = self._post.get(id(block))
        if known is None or known.block is not block or known.down is not block.down:
            known = self._post[id(block)] = PostBlock(block, self._scalar)
        attended = self._rows(attended, known.attended)
        n, summed = attended.shape[0], self._summed
        if summed is not None and residual is summed.tensors[3] and (n, known.hidden) == (summed.rows, summed.width):
            old = summed.addresses[3]
        else:
            residual = self._rows(residual, known.hidden, n)
            old = residual.data_ptr()
        if self._alone:
            kept = self._steps(known, ALL_STEPS, attended, old)
            self._made = kept if n <= KEEP_ROWS else None
            x, total = kept.tensors
            return x, total
        projected, _ = self._steps(known, PROJECT, attended, old).tensors
        projected = self._rows(ctx.all_reduce(projected), known.hidden, n)
        x, total = self._steps(known, MLP, projected, old).tensors
        x = ctx.all_reduce(x)
        if block.after_mlp is not None:
            x, _ = self._steps(known, LEAVE, self._rows(x, known.hidden, n), old).tensors
        return x, total

    def _steps(self, known: PostBlock, steps: int, given: torch.Tensor, residual: int) -> Kept:
        """What they give and the new residual, which is undefined without the step MLP. residual: where the old one lies."""
        n = given.shape[0]
        kept = known.results(n, self.dtype)
        if n:
            self._after(known.address, steps, n, given.data_ptr(), residual, *kept.addresses, self.threads)
        return kept

    def _rows(self, x: torch.Tensor, width: int, rows: int | None = None) -> torch.Tensor:
        """Rows as the native library may read them. Raises ValueError for others."""
        if x.dtype is not self.dtype or x.dim() != 2 or x.shape[1] != width or rows not in (None, x.shape[0]):
            count = "n" if rows is None else rows
            raise ValueError(f"rows are {x.dtype} {tuple(x.shape)}; {self.dtype} ({count}, {width}) was expected")
        return x if x.is_contiguous() else x.contiguous()
