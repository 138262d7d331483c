"""The conformance suite of kind `ops`: each operator against its float64 twin, and the rules of sampling one by one."""

from __future__ import annotations

from dataclasses import replace

import torch

from jackfield.hookspecs import AttentionPlan, LayerBlocks, Ops
from jackfield.testing import ops_twin
from jackfield.testing.conformance.device import bits
from jackfield.testing.conformance.ops_kv_write import KVWriteConformance
from jackfield.testing.conformance.ops_weights import ROWS
from jackfield.testing.ops_twin import LayerWeights, OwnValues, TwinContext


class OpsConformance(KVWriteConformance):
    """All checks of the kind."""

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
                for n in self.rows():
                    positions = torch.arange(n, device=self.here()) * 3 + 5
                    x, residual = (self.randn(n, self.hidden, dtype=dtype, seed=seed) for seed in (1, 2))
                    for added in (None, residual):
                        wanted = given.before(x, added, positions)
                        passed = None if added is None else added.clone()
                        found = ops.pre_attention(block, x.clone(), passed, TwinContext(ops, positions))
                        for name, mine, theirs in zip(("q", "k", "v", "residual"), found, wanted, strict=True):
                            assert mine is not None, f"{name} is None, and kv_write gave nothing to write it to"
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
