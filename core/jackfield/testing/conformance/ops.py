"""The conformance suite of kind `ops`: each operator against its float64 twin, and the rules of sampling one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch

from jackfield.hookspecs import AttentionLayer, AttentionPlan, LayerBlocks, Ops, PostAttention, PreAttention
from jackfield.testing import ops_twin
from jackfield.testing.conformance.device import bits
from jackfield.testing.conformance.ops_weights import ROWS, WeightConformance
from jackfield.testing.ops_twin import LayerWeights, OwnValues, PlainNorm, PlainRotary, TwinContext


class OpsConformance(WeightConformance):
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

    # --- operators ---

    def test_norm(self) -> None:
        """RMS norm in float32 of x + residual, and the sum; a float32 weight is taken as it is."""
        for dtype in self.dtypes():
            ops = self.ops(dtype)
            for weight in (1 + self.randn(64, dtype=dtype, seed=1, scale=0.3), 1 + self.randn(64, seed=1, scale=0.3)):
                for scale, eps in ((1.0, 1e-6), (100.0, 1e-5), (0.01, 1e-2)):
                    x, residual = (self.randn(9, 64, dtype=dtype, seed=seed, scale=scale) for seed in (2, 3))
                    for added in (None, residual):
                        wanted, total = ops_twin.norm(x, weight, eps, added)
                        normed, kept = ops.norm(x.clone(), weight, eps, None if added is None else added.clone())
                        self.close(normed, wanted, dtype, what="norm")
                        self.close(kept, total, dtype, what="the sum that norm returns")

    def test_embedding(self) -> None:
        """Rows of the table, bit for bit."""
        for dtype in self.dtypes():
            table = self.randn(50, 24, dtype=dtype)
            for ids in (torch.tensor([3, 0, 49, 3]), torch.empty(0, dtype=torch.int64)):
                ids = ids.to(self.here())
                assert torch.equal(self.ops(dtype).embedding(ids, table), table[ids]), "not the rows of the table"

    def test_pre_attention(self) -> None:
        """Norm with the residual, the three projections, norms of q and k, and rotary over part of a head or all of it."""
        for dtype in self.dtypes():
            ops = self.ops(dtype)
            for full in (True, False):
                given = self.weights(dtype, full=full)
                block, _ = self.blocks(ops, given)
                for n in ROWS:
                    positions = torch.arange(n, device=self.here()) * 3 + 5
                    x, residual = (self.randn(n, self.hidden, dtype=dtype, seed=seed) for seed in (1, 2))
                    for added in (None, residual):
                        wanted = given.before(x, added, positions)
                        passed = None if added is None else added.clone()
                        found = ops.pre_attention(block, x.clone(), passed, TwinContext(ops, positions))
                        assert (found[1] is None) == (found[2] is None), "k and v are both given, or both written"
                        if found[1] is None:
                            assert self.manifest().layouts, "k and v are None, and the manifest lists no layout"
                        for name, mine, theirs in zip(("q", "k", "v", "residual"), found, wanted, strict=True):
                            if mine is not None:
                                self.close(mine, theirs, dtype, what=f"{name} of pre_attention", roundings=3)

    def test_post_attention(self) -> None:
        """Output projection, norm with the residual and the gated MLP, for each activation."""
        for dtype in self.dtypes():
            ops = self.ops(dtype)
            for activation in ops_twin.ACTIVATIONS:
                for full in (True, False):
                    given = self.weights(dtype, full=full, activation=activation)
                    _, block = self.blocks(ops, given)
                    attended = self.randn(9, given.o.shape[1], dtype=dtype, seed=1)
                    residual = self.randn(9, self.hidden, dtype=dtype, seed=2)
                    context = TwinContext(ops, torch.arange(9, device=self.here()))
                    wanted = given.after(attended, residual)
                    found = ops.post_attention(block, attended.clone(), residual.clone(), context)
                    for name, mine, theirs in zip(("x", "residual"), found, wanted, strict=True):
                        self.close(mine, theirs, dtype, what=f"{name} of post_attention ({activation})", roundings=4)

    def test_layers(self) -> None:
        """With an attention that no provider knows, `layers` gives nothing, or what the layers give one by one."""
        for dtype in self.dtypes():
            ops, backend, plan = self.ops(dtype), OwnValues(), AttentionPlan()
            layers = []
            for seed in (0, 1):
                given = self.weights(dtype, seed=seed)
                given.layer = replace(given.layer, id=seed)
                before, after = self.blocks(ops, given)
                layers.append(LayerBlocks(pre=before, attention=given.layer, post=after))
            for n in ROWS:
                context = TwinContext(ops, torch.arange(n, device=self.here()))
                x = self.randn(n, self.hidden, dtype=dtype, seed=3)
                found = ops.layers(layers, x.clone(), context, backend, plan)
                if found is None:
                    continue
                residual = None
                for layer in layers:
                    q, k, v, residual = ops.pre_attention(layer.pre, x, residual, context)
                    attended = q.new_empty((n, layer.attention.num_heads, layer.attention.v_head_size))
                    backend.attend(plan, layer.attention, q, k, v, attended)
                    x, residual = ops.post_attention(layer.post, attended.flatten(1), residual, context)
                for name, mine, theirs in zip(("x", "residual"), found, (x, residual), strict=True):
                    assert theirs is not None
                    self.close(mine, theirs.double(), dtype, what=f"{name} of layers", roundings=4)

    def test_row_parallel(self) -> None:
        """Both row-parallel products, and only they, go through all_reduce, biases included; what it gives is used."""
        dtype = self.dtypes()[0]
        ops, whole = self.ops(dtype, tp_size=2), self.weights(dtype)
        attended = self.randn(9, whole.o.shape[1], dtype=dtype, seed=1)
        residual = self.randn(9, self.hidden, dtype=dtype, seed=2)
        columns, inner = attended.shape[1] // 2, self.inner // 2
        parts = []
        for rank in range(2):
            gate, up = whole.gate_up.chunk(2)
            gate_bias, up_bias = whole.gate_up_bias.chunk(2) if whole.gate_up_bias is not None else (None, None)
            assert gate_bias is not None
            assert up_bias is not None
            mine = slice(rank * inner, (rank + 1) * inner)
            parts.append(
                replace(
                    whole,
                    o=whole.o[:, rank * columns : (rank + 1) * columns].contiguous(),
                    o_bias=whole.o_bias if rank == 0 else None,
                    gate_up=torch.cat((gate[mine], up[mine])),
                    gate_up_bias=torch.cat((gate_bias[mine], up_bias[mine])),
                    down=whole.down[:, mine].contiguous(),
                    down_bias=whole.down_bias if rank == 0 else None,
                )
            )
        known: list[tuple[torch.Tensor, ...]] = []
        x = residual_out = torch.empty(0)
        for _ in range(
            3
        ):  # the ranks learn each other's part of the first sum, then of the second; then both are known
            sums = []
            for rank, given in enumerate(parts):
                _, block = self.blocks(ops, given)
                share = attended[:, rank * columns : (rank + 1) * columns].contiguous()
                add = [pair[1 - rank] for pair in known]
                add += [torch.zeros_like(residual)] * (2 - len(add))
                context = TwinContext(ops, torch.arange(9, device=self.here()), add)
                x, residual_out = ops.post_attention(block, share, residual.clone(), context)
                assert len(context.reduced) == 2, f"all_reduce was called {len(context.reduced)} times, not twice"
                sums.append(context.reduced)
            known = list(zip(*sums, strict=True))[: len(known) + 1]
        wanted = whole.after(attended, residual)
        self.close(x, wanted[0], dtype, what="x of two ranks together", roundings=4)
        self.close(residual_out, wanted[1], dtype, what="the residual of two ranks together", roundings=4)

    def test_deterministic(self) -> None:
        """With `deterministic`, a row of any operator has the same bits alone, among others and in any chunk."""
        for dtype in self.invariant_dtypes():
            ops = self.ops(dtype, deterministic=True)
            for activation in ops_twin.ACTIVATIONS:
                layer = self.weights(dtype, activation=activation)
                inputs = [self.randn(70, self.hidden, dtype=dtype, seed=seed) for seed in (1, 2)]
                inputs.append(self.randn(70, layer.o.shape[1], dtype=dtype, seed=3))
                whole = self.layer_rows(ops, layer, inputs, slice(0, 70))
                for at in (slice(0, 1), slice(3, 5), slice(11, 28), slice(69, 70), slice(1, 70)):
                    for mine, theirs in zip(self.layer_rows(ops, layer, inputs, at), whole, strict=True):
                        same = torch.equal(bits(mine), bits(theirs[at]))
                        assert same, f"rows {at.start} to {at.stop - 1} in {dtype} depend on their batch"

    def layer_rows(self, ops: Ops, layer: LayerWeights, inputs: list[torch.Tensor], at: slice) -> list[torch.Tensor]:
        """All results of both blocks for some rows of (x, residual, attended)."""
        before, after = self.blocks(ops, layer)
        x, residual, attended = (one[at] for one in inputs)
        context = TwinContext(ops, torch.arange(70, device=self.here())[at])
        first = ops.pre_attention(before, x.clone(), residual.clone(), context)
        second = ops.post_attention(after, attended.clone(), residual.clone(), context)
        return [tensor for tensor in (*first, *second) if tensor is not None]
