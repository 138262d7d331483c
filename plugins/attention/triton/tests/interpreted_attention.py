"""The kernels of `attention.triton` in Triton's interpreter: TRITON_INTERPRET=1 must stand in the environment of the process.

The conformance suite asks about everything that the contract says. Here stands what it cannot know of: tiles and splits
smaller than its cases, offsets beyond 32 bits, fp8 without the hardware, and the path for the interpreter's bfloat16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from jackfield.hookspecs import NHD_PAGED, AttentionContext, GraphShape
from jackfield.model_executor.kv_tensors import allocate_kv
from jackfield.testing.attention_cases import (
    AttentionCase,
    PreparedCase,
    assert_close,
    attend_layers,
    check_prepared,
    prepare,
    wanted,
    write_new,
)
from jackfield_attention_triton import backend as backends
from jackfield_attention_triton import launch
from jackfield_attention_triton.backend import TritonAttention
from jackfield_attention_triton.kernels.numbers import tanh, widened
from jackfield_attention_triton.tuning import Blocks, Tuning

RAGGED = ((0, 1), (40, 1), (41, 5), (0, 11))


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two queries of two heads in a tile, and splits of sixteen keys."""
    tuning = Tuning(
        decode=Blocks(lines=16, keys=16, warps=1, stages=1),
        extend=Blocks(lines=16, keys=16, warps=1, stages=1),
        programs=64,
        least_keys=16,
        max_splits=4,
    )
    monkeypatch.setattr(backends, "tuning_for", lambda *_: tuning)


def made(prepared: PreparedCase, **options: Any) -> TritonAttention:
    return TritonAttention(prepared.context, **options)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_heads": 9, "num_kv_heads": 3, "head_size": 80, "v_head_size": 24},
        {"num_heads": 20, "num_kv_heads": 1, "dtype": torch.float16},
        {"num_heads": 1, "num_kv_heads": 1, "exact": False},
        {"window": 20, "soft_cap": 2.0, "variety": True},
        {"causal": False, "window": 30},
        {"tree": "random", "window": 50, "lengths": ((40, 1), (41, 7), (0, 9))},
        {"lengths": ((9, 0), (40, 1), (7, 5), (0, 0))},
    ],
    ids=lambda changes: " ".join(changes),
)
def test_small_tiles_and_many_splits(changes: Mapping[str, Any]) -> None:
    prepared = prepare(replace(AttentionCase(lengths=RAGGED, layout=NHD_PAGED, page_size=3), **changes))
    check_prepared(prepared, made(prepared))


def test_bfloat16_by_the_path_for_the_interpreter() -> None:
    """It rounds what it stores towards zero, hence some bits less are asked for here."""
    prepared = prepare(AttentionCase(lengths=((40, 1), (7, 5)), layout=NHD_PAGED, dtype=torch.bfloat16))
    write_new(prepared, prepared.pools)
    backend = made(prepared)
    backend.bind(prepared.pools)
    found = attend_layers(prepared, backend, backend.plan(prepared.batch), written=True)[0]
    error = found.double() - wanted(prepared, prepared.pools)[0]
    assert float(error.abs().max()) < 0.02


def test_one_plan_of_a_graph_serves_all_lengths() -> None:
    """Uses with other rows, lengths and padding in the same tensors; nothing is planned again."""
    prepared = prepare(
        AttentionCase(lengths=((0, 1), (30, 1), (79, 1), (5, 1)), layout=NHD_PAGED, window=50, variety=True)
    )
    batch = prepared.batch
    backend = made(prepared)
    backend.bind(prepared.pools)
    held = replace(
        batch,
        rows=torch.zeros_like(batch.rows),
        kv_lens=torch.ones_like(batch.kv_lens),
        out_slots={name: torch.zeros_like(slots) for name, slots in batch.out_slots.items()},
    )
    plan = backend.plan_graph(held, GraphShape(rows=4, max_kv=120))
    for order in ([0, 1, 2, 3], [2, 0, 3, 1], [1, 3]):  # the last with two rows of padding
        used = len(order)
        for ours, theirs in ((held.rows, batch.rows), (held.kv_lens, batch.kv_lens)):
            ours[:used] = theirs[order]
        held.rows[used:], held.kv_lens[used:] = 0, 1
        for name, slots in held.out_slots.items():
            slots[:used], slots[used:] = batch.out_slots[name][order], 0
        host = replace(batch.host, kv_lens=held.kv_lens.numpy().copy())
        inputs = {
            layer: tuple(None if one is None else torch.cat([one[order], one[: 4 - used]]) for one in given)
            for layer, given in prepared.inputs.items()
        }
        use = replace(prepared, batch=replace(held, host=host), inputs=inputs)
        backend.refresh(plan, use.batch)
        backend.in_graph(plan)
        found = attend_layers(use, backend, plan)
        expected = wanted(prepared, prepared.pools) if used == 4 else {}
        for layer, theirs in expected.items():
            assert_close({layer: found[layer]}, {layer: theirs[order]}, prepared.case)
        if used < 4:
            for layer, theirs in wanted(prepared, prepared.pools).items():
                assert_close({layer: found[layer][:used]}, {layer: theirs[order]}, prepared.case)


@triton.jit
def _widen(bits, found, FP8: tl.constexpr):
    at = tl.arange(0, 256)
    tl.store(found + at, widened(tl.load(bits + at), tl.float32, FP8))


@triton.jit
def _tanh(x, found, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(found + at, tanh(tl.load(x + at)))


@pytest.mark.parametrize(("dtype", "name"), [(torch.float8_e4m3fn, "e4m3"), (torch.float8_e5m2, "e5m2")])
def test_all_fp8_numbers(dtype: torch.dtype, name: str) -> None:
    bits, found = torch.arange(256, dtype=torch.uint8), torch.empty(256)
    _widen[(1,)](bits, found, FP8=name)
    assert torch.equal(found.nan_to_num(nan=7e9), bits.view(dtype).float().nan_to_num(nan=7e9))


def test_tanh_is_exact_to_the_value() -> None:
    x = torch.cat([torch.linspace(-30, 30, 2048), torch.logspace(-20, 1, 2048)])
    found = torch.empty_like(x)
    _tanh[(1,)](x, found, N=4096)
    exact = torch.tanh(x.double())
    assert float(((found - exact) / exact.where(exact != 0, 1.0)).abs().max()) < 5e-7


def test_offsets_beyond_32_bits() -> None:
    """Slots so far behind that their elements cannot be counted in 32 bits. The memory is asked for, and hardly touched."""
    case = AttentionCase(
        lengths=((3, 2), (5, 1)), layout=NHD_PAGED, num_heads=2, head_size=256, page_size=1, dtype=torch.float16
    )
    prepared = prepare(case)
    far = (1 << 31) // (2 * 256)
    layouts = dict.fromkeys(prepared.pools, NHD_PAGED)
    moved = allocate_kv(case.groups, layouts, far + prepared.kv.of("k", 0).shape[0], 1, case.dtype, torch.device("cpu"))
    for role in ("k", "v"):
        moved["full"].of(role, 0)[far : far + len(prepared.kv.of(role, 0))] = prepared.kv.of(role, 0)
    table = prepared.context.tables["full"] + far
    context: AttentionContext = replace(prepared.context, tables={"full": table})
    slots = {"full": prepared.out_slots + far}
    there = replace(prepared, context=context, pools=moved, batch=replace(prepared.batch, out_slots=slots))
    write_new(prepared, prepared.pools)
    backend = made(there)
    backend.bind(moved)
    found = attend_layers(there, backend, backend.plan(there.batch))
    assert_close(found, wanted(prepared, prepared.pools), case)


def test_many_programs_copy_what_one_cannot() -> None:
    """Keys of a token that are wider than one program's block, and no power of two; values narrower."""
    k, v = torch.randn(3, 9, 192)[:, :, :], torch.randn(3, 9, 24)
    keys, values = torch.full((7, 9, 192), math.nan), torch.full((7, 9, 24), math.nan)
    launch.write(torch.tensor([5, 0, 2]), k, v, keys, values)
    assert torch.equal(keys[[5, 0, 2]], k)
    assert torch.equal(values[[5, 0, 2]], v)
    assert bool(keys[[1, 3, 4, 6]].isnan().all())


def test_host_lengths_are_never_looked_at_in_a_graph() -> None:
    prepared = prepare(AttentionCase(lengths=((0, 1), (30, 1)), layout=NHD_PAGED))
    backend = made(prepared)
    nothing = replace(prepared.batch.host, q_lens=np.zeros(0, np.int32), kv_lens=np.zeros(0, np.int32))
    plan = backend.plan_graph(replace(prepared.batch, host=nothing), GraphShape(rows=2, max_kv=64))
    assert {len(launches) for launches in plan.launches.values()} == {1}
