"""Blocks round attention against their float64 twins, at each level: sizes that fill no tile, both ways to share rows out."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from jackfield.hookspecs import AttentionLayer, PostAttention, PreAttention
from jackfield.testing.ops_twin import ACTIVATIONS, LayerWeights, PlainNorm, PlainRotary, TwinContext
from jackfield_ops_cpu.ops import CpuOps

TOLERANCES = {torch.float32: 5e-6, torch.bfloat16: 3e-2, torch.float16: 5e-3}


def layer_weights(
    rig: Any, dtype: torch.dtype, hidden: int, inner: int, heads: int, head_size: int, activation: str
) -> LayerWeights:
    """With all that a layer may have."""
    layer = AttentionLayer(
        id=0, group="full", num_heads=heads, num_kv_heads=2, head_size=head_size, v_head_size=head_size + 6, scale=1.0
    )
    seeds = iter(range(1000))

    def matrix(out: int, into: int) -> torch.Tensor:
        return (rig.randn(out, into, seed=next(seeds)) * into**-0.5).to(dtype)

    def vector(size: int, kind: torch.dtype = dtype) -> torch.Tensor:
        return (rig.randn(size, seed=next(seeds)) * 0.3).to(kind)

    return LayerWeights(
        layer=layer,
        norm_in=PlainNorm(weight=1 + vector(hidden), eps=1e-5),
        qkv=matrix((heads + 2) * head_size + 2 * layer.v_head_size, hidden),
        qkv_bias=vector((heads + 2) * head_size + 2 * layer.v_head_size),
        q_norm=PlainNorm(weight=1 + vector(head_size), eps=1e-6),
        k_norm=PlainNorm(weight=1 + vector(head_size, torch.float32), eps=1e-3),
        rotary=PlainRotary(size=head_size // 4 * 2),
        o=matrix(hidden, heads * layer.v_head_size),
        o_bias=vector(hidden),
        norm_out=PlainNorm(weight=1 + vector(hidden, torch.float32), eps=1e-4),
        gate_up=matrix(2 * inner, hidden),
        gate_up_bias=vector(2 * inner),
        down=matrix(hidden, inner),
        down_bias=vector(hidden),
        activation=activation,
        after_attention=PlainNorm(weight=1 + vector(hidden), eps=1e-3),
        after_mlp=PlainNorm(weight=1 + vector(hidden), eps=1e-2),
    )


def blocks(rig: Any, ops: CpuOps, given: LayerWeights) -> tuple[PreAttention, PostAttention]:
    return PreAttention(
        layer=given.layer,
        norm=given.norm_in,
        qkv=rig.packed(ops, given.qkv),
        qkv_bias=given.qkv_bias,
        rotary=given.rotary,
        q_norm=given.q_norm,
        k_norm=given.k_norm,
    ), PostAttention(
        layer=given.layer,
        o=rig.packed(ops, given.o),
        o_bias=given.o_bias,
        norm=given.norm_out,
        gate_up=rig.packed(ops, given.gate_up),
        gate_up_bias=given.gate_up_bias,
        down=rig.packed(ops, given.down),
        down_bias=given.down_bias,
        activation=given.activation,
        after_attention=given.after_attention,
        after_mlp=given.after_mlp,
    )


def hold(rig: Any, found: Any, wanted: Any, dtype: torch.dtype) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        assert rig.off_by(mine, theirs) < TOLERANCES[dtype]


@pytest.mark.parametrize(("hidden", "inner", "heads", "head_size"), [(48, 80, 4, 16), (50, 37, 2, 10)])
def test_blocks(
    rig: Any, native: ctypes.CDLL, dtype: torch.dtype, hidden: int, inner: int, heads: int, head_size: int
) -> None:
    given = layer_weights(rig, dtype, hidden, inner, heads, head_size, "silu")
    for threads, rows in ((1, (3, 300)), (2, (1, 5, 40, 600))):
        ops = CpuOps(dtype, threads=threads)
        pre, post = blocks(rig, ops, given)
        for n in rows:
            x, residual = (rig.randn(n, hidden, seed=seed, dtype=dtype) for seed in (1, 2))
            positions = torch.arange(n) * 2 + 3
            context = TwinContext(ops, positions)
            for added in (None, residual):
                found = ops.pre_attention(pre, x.clone(), None if added is None else added.clone(), context)
                hold(rig, found, given.before(x, added, positions), dtype)
            attended = rig.randn(n, given.o.shape[1], seed=3, dtype=dtype)
            hold(rig, ops.post_attention(post, attended, residual, context), given.after(attended, residual), dtype)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(rig: Any, native: ctypes.CDLL, activation: str) -> None:
    for dtype in rig.dtypes:
        ops, given = CpuOps(dtype, threads=1), layer_weights(rig, dtype, 32, 48, 2, 16, activation)
        _, post = blocks(rig, ops, given)
        attended, residual = (rig.randn(9, size, seed=1, dtype=dtype) for size in (given.o.shape[1], 32))
        context = TwinContext(ops, torch.arange(9))
        hold(
            rig, ops.post_attention(post, attended * 30, residual, context), given.after(attended * 30, residual), dtype
        )


def test_ranks_meet_between_the_steps(rig: Any, native: ctypes.CDLL) -> None:
    """With several ranks the sums go through all_reduce, and what it gives is what goes on."""
    for dtype in rig.dtypes:
        given = layer_weights(rig, dtype, 48, 80, 4, 16, "gelu_tanh")
        ops, split = CpuOps(dtype, threads=2), CpuOps(dtype, threads=2, alone=False)
        for n in (1, 7):
            attended, residual = (rig.randn(n, size, seed=n, dtype=dtype) for size in (given.o.shape[1], 48))
            context = TwinContext(split, torch.arange(n))
            found = split.post_attention(blocks(rig, split, given)[1], attended, residual, context)
            assert len(context.reduced) == 2
            together = ops.post_attention(
                blocks(rig, ops, given)[1], attended, residual, TwinContext(ops, torch.arange(n))
            )
            assert all(torch.equal(one, other) for one, other in zip(found, together, strict=True))


def test_no_rows(rig: Any) -> None:
    ops, given = CpuOps(torch.float32, threads=2), layer_weights(rig, torch.float32, 48, 80, 4, 16, "relu")
    pre, post = blocks(rig, ops, given)
    context = TwinContext(ops, torch.empty(0, dtype=torch.int64))
    nothing = torch.empty(0, 48)
    q, k, v, total = ops.pre_attention(pre, nothing, None, context)
    assert q.shape == (0, 4, 16)
    assert v is not None
    assert k is not None
    assert v.shape == (0, 2, 22)
    assert total.shape == ops.post_attention(post, torch.empty(0, 88), nothing, context)[0].shape == (0, 48)


def test_angles_are_looked_up_once_a_forward_and_anew_for_the_next(rig: Any) -> None:
    class Counted(PlainRotary):
        calls = 0

        def tables(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            Counted.calls += 1
            return super().tables(positions)

    ops, given = CpuOps(torch.float32, threads=1), layer_weights(rig, torch.float32, 48, 80, 4, 16, "silu")
    given.rotary = Counted(size=8)
    (first, _), (second, _) = blocks(rig, ops, given), blocks(rig, ops, given)
    x = rig.randn(3, 48, seed=1)
    for start in (0, 5):
        context = TwinContext(ops, torch.arange(3) + start)
        for block in (first, second):
            hold(
                rig, ops.pre_attention(block, x, None, context), given.before(x, None, context.positions), torch.float32
            )
    assert Counted.calls == 2 + 8  # the twin looks them up for q and k of each layer


def test_blocks_that_do_not_fit_together_are_refused(rig: Any) -> None:
    ops, given = CpuOps(torch.float32, threads=1), layer_weights(rig, torch.float32, 48, 80, 4, 16, "silu")
    pre, post = blocks(rig, ops, given)
    post.down = rig.packed(ops, torch.zeros(48, 81))
    with pytest.raises(ValueError, match=r"layer 0: .* down 48 x 81 do not fit together"):
        ops.post_attention(post, torch.zeros(1, 88), torch.zeros(1, 48), TwinContext(ops, torch.arange(1)))
    context = TwinContext(ops, torch.arange(1))
    with pytest.raises(ValueError, match=r"\(1, 48\); torch.float32 \(2, 48\) was expected"):
        ops.pre_attention(pre, torch.zeros(2, 48), torch.zeros(1, 48), context)
    with pytest.raises(ValueError, match=r"\(1, 48\); torch.float32 \(2, 48\) was expected"):
        ops.post_attention(blocks(rig, ops, given)[1], torch.zeros(2, 88), torch.zeros(1, 48), context)
    pre.qkv_bias = torch.zeros(3)
    pre.qkv = rig.packed(ops, given.qkv)
    with pytest.raises(ValueError, match=r"a bias is torch.float32 \(3,\)"):
        ops.pre_attention(pre, torch.zeros(1, 48), None, TwinContext(ops, torch.arange(1)))
    pre.qkv = torch.zeros(140, 48)
    with pytest.raises(TypeError, match="not packed by this provider"):
        ops.pre_attention(pre, torch.zeros(1, 48), None, TwinContext(ops, torch.arange(1)))


def test_a_result_that_somebody_holds_is_not_overwritten(rig: Any) -> None:
    """Tensors of the last result serve again where nobody has them any more; within a forward no two blocks share any."""
    ops, given = CpuOps(torch.float32, threads=1), layer_weights(rig, torch.float32, 48, 80, 4, 16, "silu")
    (pre, post), (other, _) = blocks(rig, ops, given), blocks(rig, ops, given)
    x, residual = rig.randn(2, 48, seed=1), rig.randn(2, 48, seed=2)
    context = TwinContext(ops, torch.arange(2))

    def places(found: Any) -> set[int]:
        return {tensor.data_ptr() for tensor in found}

    first = places(ops.pre_attention(pre, x, residual, context))
    held = ops.pre_attention(pre, x, residual, context)
    assert places(held) == first, "nobody held the first"
    copies = [tensor.clone() for tensor in held]
    assert places(ops.pre_attention(pre, -x, residual, context)).isdisjoint(first)
    assert places(ops.pre_attention(other, -x, residual, context)).isdisjoint(first)
    hidden, _ = ops.post_attention(post, rig.randn(2, 88, seed=3), residual, context)
    again, _ = ops.post_attention(post, rig.randn(2, 88, seed=4), residual, context)
    assert hidden.data_ptr() != again.data_ptr()
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(held, copies, strict=True))
