"""Calls of the kernels: which arguments they get for a layer, a plan and the pages."""

from __future__ import annotations

import torch
import triton

from jackfield.hookspecs import AttentionLayer
from jackfield.model_executor.dtypes import as_stored, movable
from jackfield_attention_triton.kernels.attend import attend_kernel
from jackfield_attention_triton.kernels.reduce import reduce_kernel
from jackfield_attention_triton.kernels.split_length import split_length_kernel
from jackfield_attention_triton.kernels.write import write_kernel
from jackfield_attention_triton.layers import LayerKind, block_of
from jackfield_attention_triton.plan import Launch, TritonPlan

_FP8 = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
_COPIED = 1024  # elements that one program copies of a token's keys
_PARTS = 16  # splits that are added up at once


def write(slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
    """k, v [tokens, kv_heads, size], tokens may lie apart; keys, values [slots, kv_heads, size] dense; slots int64 [tokens]."""
    k, v = (movable(as_stored(new, pages.dtype)) for new, pages in ((k, keys), (v, values)))
    keys, values = movable(keys), movable(values)
    k_width, v_width = keys.shape[1] * keys.shape[2], values.shape[1] * values.shape[2]
    block = min(_COPIED, triton.next_power_of_2(max(k_width, v_width)))
    write_kernel[(slots.numel(), triton.cdiv(max(k_width, v_width), block))](
        *(k, v, keys, values, slots, k.stride(0), v.stride(0), k_width, v_width),
        K_WIDTH=k_width,
        V_WIDTH=v_width,
        BLOCK=block,
        num_warps=4 if block >= 512 else 1,
        enable_fp_fusion=True,
    )


def find_split_length(plan: TritonPlan, kind: LayerKind, launch: Launch) -> None:
    """Fill `launch.splits.length` from the lengths on the device."""
    splits, shape = launch.splits, launch.shape
    assert splits is not None
    split_length_kernel[(1,)](
        *(splits.length, plan.q_starts, plan.kv_lens, launch.tiles, launch.num_tiles),
        *(splits.cut.count, splits.cut.budget, splits.cut.least),
        BLOCK_Q=shape.queries,
        BLOCK_N=shape.blocks.keys,
        WINDOW=kind.window,
        CAUSAL=shape.causal,
        TILED=launch.tiles is not None,
        BLOCK=1024,
        num_warps=4,
        enable_fp_fusion=True,
    )


def attend(
    plan: TritonPlan,
    kind: LayerKind,
    launch: Launch,
    layer: AttentionLayer,
    table: torch.Tensor,
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    out: torch.Tensor,
    *,
    native_fp8: bool,
    upcast: bool,
) -> None:
    """q [tokens, heads, size], tokens may lie apart; keys, values [slots, kv_heads, size] dense; table int32 [rows, context];
    out [tokens, heads, v_head_size]. native_fp8: Triton converts e4m3 on this device; upcast: see `attend_kernel`."""
    shape, splits = launch.shape, launch.splits
    chunks = triton.cdiv(kind.share, shape.tile_heads)
    bits = "" if native_fp8 else _FP8.get(keys.dtype, "")
    among = plan.among if shape.tree else None  # for rows of one new token it says nothing, and is one more kernel
    attend_kernel[(launch.num_tiles * kind.num_kv_heads * chunks, 1 if splits is None else splits.cut.count)](
        *(q, movable(keys) if bits else keys, movable(values) if bits else values, out),
        *((None, None) if splits is None else (splits.parts, splits.marks)),
        *(table, plan.rows, plan.q_starts, plan.kv_lens, launch.tiles, None if splits is None else splits.length),
        *(among, layer.scale, q.stride(0), keys.stride(0), values.stride(0), table.stride(0)),
        *(0 if among is None else among.stride(0), 1 if splits is None else splits.cut.count),
        SHARE=kind.share,
        KV_HEADS=kind.num_kv_heads,
        HEAD_SIZE=kind.head_size,
        V_HEAD_SIZE=kind.v_head_size,
        HEAD_BLOCK=block_of(kind.head_size),
        V_BLOCK=block_of(kind.v_head_size),
        BLOCK_M=shape.blocks.lines,
        BLOCK_Q=shape.queries,
        BLOCK_N=shape.blocks.keys,
        TILE_HEADS=shape.tile_heads,
        WINDOW=kind.window,
        CAUSAL=shape.causal,
        TREE=shape.tree,
        SOFT_CAP=layer.soft_cap or 0.0,
        FP8=bits,
        TILED=launch.tiles is not None,
        SPLIT=splits is not None,
        UPCAST=upcast,
        num_warps=shape.blocks.warps,
        num_stages=shape.blocks.stages,
        enable_fp_fusion=True,
    )
    if splits is None:
        return
    most = triton.next_power_of_2(splits.cut.most)
    reduce_kernel[(shape.width, kind.num_heads)](
        *(splits.parts, splits.marks, out, plan.q_starts, plan.kv_lens, launch.tiles, splits.length, splits.cut.count),
        HEADS=kind.num_heads,
        V_HEAD_SIZE=kind.v_head_size,
        V_BLOCK=block_of(kind.v_head_size),
        BLOCK_Q=shape.queries,
        SPLITS_BLOCK=most,
        PARTS_BLOCK=min(_PARTS, most),
        WINDOW=kind.window,
        CAUSAL=shape.causal,
        TILED=launch.tiles is not None,
        num_warps=4 if kind.v_head_size > 64 else 2,
        enable_fp_fusion=True,
    )
