"""All layers in one call: the same bits as layer by layer, in results and KV, whatever the batch, at each level."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield import Engine
from jackfield.hookspecs import (
    HND_PAGED,
    NHD_PAGED,
    AttentionLayer,
    AttentionPlan,
    KVLayout,
    LayerBlocks,
    PostAttention,
    PreAttention,
)
from jackfield.layers.one_by_one import layers_one_by_one
from jackfield.model_executor.forward_context import BatchContext
from jackfield.testing.attention_cases import AttentionCase, PreparedCase, prepare
from jackfield.testing.ops_twin import OwnValues, PlainNorm, PlainRotary
from jackfield.testing.packed import write_packed_gguf
from jackfield_ops_cpu.attention import NativeAttention
from jackfield_ops_cpu.ops import CpuOps

HIDDEN = 80

BATCHES: Mapping[str, Sequence[tuple[int, int]]] = {
    "one token": [(300, 1)],  # whose attention is cut into chunks
    "few": [(90, 1), (400, 1), (0, 1)],  # each thread norms all
    "some": [(70, 1), (3, 1), (0, 4), (129, 1), (20, 2)],
    "a prompt": [(0, 140)],  # one thread alone takes it in two blocks
    "mixed": [(200, 1), (16, 60), (0, 90), (33, 1)],
    "many": [(0, 280), (50, 1)],  # rows are shared out
}


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def layer_blocks(
    rig: Any, ops: CpuOps, layer: AttentionLayer, rotary: PlainRotary | None, *, full: bool, inner: int
) -> LayerBlocks:
    """full: with biases, and norms of heads and behind the blocks."""
    heads, groups, size, v_size = layer.num_heads, layer.num_kv_heads, layer.head_size, layer.v_head_size
    seeds = iter(range(100 * layer.id, 100 * layer.id + 100))
    rows = (heads + groups) * size + groups * v_size

    def matrix(out: int, into: int) -> Any:
        return rig.packed(ops, (rig.randn(out, into, seed=next(seeds)) * into**-0.5).to(ops.dtype))

    def vector(width: int) -> torch.Tensor | None:
        return (rig.randn(width, seed=next(seeds)) * 0.3).to(ops.dtype) if full else None

    def norm(width: int) -> PlainNorm:
        return PlainNorm(weight=(1 + rig.randn(width, seed=next(seeds)) * 0.3).to(ops.dtype), eps=1e-5)

    def extra(width: int) -> PlainNorm | None:
        return norm(width) if full else None

    return LayerBlocks(
        pre=PreAttention(
            layer=layer,
            norm=norm(HIDDEN),
            qkv=matrix(rows, HIDDEN),
            qkv_bias=vector(rows),
            rotary=rotary,
            q_norm=extra(size),
            k_norm=extra(size),
        ),
        attention=layer,
        post=PostAttention(
            layer=layer,
            o=matrix(HIDDEN, heads * v_size),
            o_bias=vector(HIDDEN),
            norm=norm(HIDDEN),
            gate_up=matrix(2 * inner, HIDDEN),
            gate_up_bias=vector(2 * inner),
            down=matrix(HIDDEN, inner),
            down_bias=vector(HIDDEN),
            activation="gelu_tanh" if full else "silu",
            after_attention=extra(HIDDEN),
            after_mlp=extra(HIDDEN),
        ),
    )


def model(rig: Any, ops: CpuOps, case: AttentionCase) -> tuple[LayerBlocks, ...]:
    """Layers that differ: with and without what is optional, of two rotary tables or none, with an MLP that fills no tile."""
    rotaries = [PlainRotary(size=case.head_size // 4 * 2), None, PlainRotary(size=case.head_size // 2 * 2)]
    return tuple(
        layer_blocks(rig, ops, layer, rotaries[i % 3], full=i % 2 == 0, inner=37 if i == 1 else 96)
        for i, layer in enumerate(case.layers)
    )


class Run:
    """A case with its own KV, its backend and its plan."""

    def __init__(self, case: AttentionCase, ops: CpuOps) -> None:
        self.prepared: PreparedCase = prepare(case)
        self.backend = NativeAttention(self.prepared.context)
        self.backend.bind(self.prepared.pools)
        self.plan = self.backend.plan(self.prepared.batch)
        lengths = case.lengths
        self.positions = torch.cat([torch.arange(cached, cached + new) for cached, new in lengths])
        self.context = BatchContext(self.positions, ops, self.backend, self.plan)

    def kv(self) -> list[torch.Tensor]:
        """As integers, because what no row owns is NaN."""
        pools = self.prepared.pools.values()
        return [
            tensor.view(torch.int32 if tensor.element_size() == 4 else torch.int16)
            for pool in pools
            for role in ("k", "v")
            for tensor in pool.tensors[role]
        ]


def hold(rig: Any, ops: CpuOps, case: AttentionCase) -> None:
    layers = model(rig, ops, case)
    alone, together = Run(case, ops), Run(case, ops)
    x = rig.randn(len(alone.positions), HIDDEN, seed=1, dtype=ops.dtype)
    before = [tensor.clone() for tensor in together.kv()]
    wanted = layers_one_by_one(layers, x.clone(), alone.context)
    for _ in range(2):  # from what was kept, too
        given = x.clone()
        found = ops.layers(layers, given, together.context, together.backend, together.plan)
        assert found is not None
        assert torch.equal(given, x)
        for mine, theirs in zip((*found, *together.kv()), (*wanted, *alone.kv()), strict=True):
            assert torch.equal(mine, theirs)
    assert not all(torch.equal(old, new) for old, new in zip(before, together.kv(), strict=True))


@pytest.mark.parametrize("batch", BATCHES)
def test_the_same_bits_as_layer_by_layer(rig: Any, dtype: torch.dtype, threads: int, batch: str) -> None:
    ops = CpuOps(dtype, threads=threads)
    for layout, window in ((HND_PAGED, 50), (NHD_PAGED, None)):
        hold(rig, ops, AttentionCase(
            lengths=BATCHES[batch], layout=layout, dtype=dtype, num_heads=6, num_kv_heads=2, head_size=20, v_head_size=24,
            page_size=16, window=window, soft_cap=3.0, variety=True,
        ))  # fmt: skip


@pytest.mark.parametrize("layout", [HND_PAGED, NHD_PAGED], ids=lambda layout: layout.name)
def test_every_level(rig: Any, native: ctypes.CDLL, dtype: torch.dtype, layout: KVLayout) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for quantization in (None, "w8a8_int8"):
            ops = CpuOps(dtype, threads=2, quantization=quantization)
            for batch in ("one token", "some"):
                case = AttentionCase(
                    lengths=BATCHES[batch], layout=layout, dtype=dtype, num_heads=9, num_kv_heads=3, head_size=64
                )
                hold(rig, ops, case)
    finally:
        torch.set_num_threads(before)


CASE = AttentionCase(lengths=[(40, 1), (3, 2)], layout=HND_PAGED, variety=True, window=9, page_size=4)


def test_the_context_asks_the_operators(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = CpuOps(torch.float32, threads=torch.get_num_threads())
    layers, x = model(rig, ops, CASE), rig.randn(3, HIDDEN, seed=1)
    run = Run(CASE, ops)
    wanted = run.context.layers(layers, x)
    for name in ("pre_attention", "post_attention"):
        monkeypatch.setattr(CpuOps, name, None)
    assert all(map(torch.equal, Run(CASE, ops).context.layers(layers, x), wanted))


def test_with_another_attention_the_layers_are_gone_through_one_by_one(rig: Any) -> None:
    threads = torch.get_num_threads()
    ops, backend = CpuOps(torch.float32, threads=threads), OwnValues()
    layers, x = model(rig, ops, CASE), rig.randn(3, HIDDEN, seed=1)
    context = BatchContext(torch.arange(3), ops, backend, AttentionPlan())
    assert ops.layers(layers, x, context, backend, AttentionPlan()) is None
    assert all(map(torch.equal, context.layers(layers, x), layers_one_by_one(layers, x, context)))
    run = Run(CASE, ops)
    for other in (
        CpuOps(torch.float32, threads=threads, alone=False),  # the ranks meet between the steps
        CpuOps(torch.float32, threads=threads + 1),
        CpuOps(torch.bfloat16, threads=threads),
    ):
        assert other.layers(layers, x, run.context, run.backend, run.plan) is None
    assert ops.layers(layers, x[:0], run.context, run.backend, run.plan) is None
    assert ops.layers((), x, run.context, run.backend, run.plan) is None


def test_what_is_bound_or_packed_anew_is_seen(rig: Any) -> None:
    ops = CpuOps(torch.float32, threads=torch.get_num_threads())
    layers, x = model(rig, ops, CASE), rig.randn(3, HIDDEN, seed=1)
    run = Run(CASE, ops)
    first = run.context.layers(layers, x)
    moved = prepare(CASE)
    run.backend.bind(moved.pools)
    for pool in run.prepared.pools.values():
        for tensor in (*pool.tensors["k"], *pool.tensors["v"]):
            tensor.fill_(torch.nan)
    assert all(map(torch.equal, run.context.layers(layers, x), first))
    layers[1].post.down = rig.packed(ops, rig.randn(HIDDEN, 37, seed=5))
    again = run.context.layers(layers, x)
    assert not torch.equal(again[0], first[0])
    run.backend.bind(prepare(CASE).pools)
    assert all(map(torch.equal, again, layers_one_by_one(layers, x, run.context)))


def test_rows_that_do_not_fit_are_refused(rig: Any) -> None:
    ops = CpuOps(torch.float32, threads=torch.get_num_threads())
    layers, run = model(rig, ops, CASE), Run(CASE, ops)
    for x, told in (
        (torch.zeros(4, HIDDEN), "4 rows enter the layers; the attention plan is of another number of tokens"),
        (torch.zeros(3, HIDDEN + 1), r"\(3, 81\); torch.float32 \(n, 80\) was expected"),
    ):
        context = BatchContext(torch.arange(len(x)), ops, run.backend, run.plan)
        with pytest.raises(ValueError, match=told):
            context.layers(layers, x)
    layers[1].post.o = rig.packed(ops, torch.zeros(HIDDEN, 65))
    with pytest.raises(ValueError, match=r"layer 1: .* its o takes 65 of 64 of its heads"):
        run.context.layers(layers, torch.zeros(3, HIDDEN))


def test_a_model_of_packed_weights_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_packed_gguf(tmp_path / "m.gguf", {"attn_v": "q6_k", "ffn_down": "q4_1", "": "q4_k"})

    def answers() -> list[Any]:
        with Engine(
            model_path=str(path), ops="cpu", attention_backend="cpu", device="cpu", max_total_tokens=2048,
            weight_cache_dir="none", dtype="bfloat16", quantization="gguf",
        ) as engine:  # fmt: skip
            return [
                engine.generate(
                    input_ids=prompt,
                    sampling_params={"max_new_tokens": 8, "temperature": 0, "ignore_eos": True},
                    return_logprob=True,
                )["meta_info"]["output_token_logprobs"]
                for prompt in ([5, 6, 7, 300, 8], [*range(3, 63)])
            ]

    asked = []
    together = CpuOps.layers

    def counted(*args: Any) -> Any:
        asked.append(found := together(*args))
        return found

    monkeypatch.setattr(CpuOps, "layers", counted)
    found = answers()
    assert asked
    assert all(one is not None for one in asked)
    monkeypatch.setattr(CpuOps, "layers", lambda *_: None)
    assert answers() == found
