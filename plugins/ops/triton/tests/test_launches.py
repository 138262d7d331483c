"""How many kernels a run compiles on a GPU that is not here: the operators run up to where one would be compiled, as Triton's
launcher would ask for it. Each costs a request that waits for it some seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from jackfield.hookspecs import AttentionLayer, KVWrite, PreAttention
from jackfield.layers.rope_config import RopeConfig
from jackfield.layers.rotary import RotaryTable
from jackfield.testing.ops_twin import PlainNorm, TwinContext
from jackfield.testing.sampling_twin import Draw, sampling_rows
from jackfield_ops_triton.ops import KERNELS, TritonOps

LAYER = AttentionLayer(id=0, group="full", num_heads=8, num_kv_heads=2, head_size=64, v_head_size=64, scale=1.0)
WIDTH = (8 + 2 * 2) * 64
ROWS = (1, 2, 3, 15, 16, 17, 250)


@dataclass(frozen=True)
class NoGPU:
    """Triton's driver: it says what it compiles for, and launches nothing."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> str:
        return "none"  # kernels keep what they know of a device by this

    def get_current_stream(self, device: str) -> int:
        return 0


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """Names of kernels, and what each would be compiled for."""
    found: set[tuple[str, str]] = set()

    def asked(*, key: str, fn: Any, **_: object) -> bool:
        found.add((fn.jit_function.__name__, key))
        return True  # it shall not be compiled

    monkeypatch.setattr(driver, "_active", NoGPU())
    monkeypatch.setattr(triton.knobs.runtime, "jit_cache_hook", asked)
    return found


def kernels(compiled: set[tuple[str, str]]) -> Mapping[str, int]:
    names = [name for name, _ in compiled]
    return {name: names.count(name) for name in sorted(set(names))}


def test_layers_of_all_batches_use_the_same_kernels(compiled: set[tuple[str, str]]) -> None:
    """One for a norm with the residual and one without, and one for heads that are kept where attention reads them."""
    ops, norm = TritonOps(KERNELS), PlainNorm(weight=torch.ones(64), eps=1e-5)
    rope = RopeConfig(rope_type="default", theta=1e4, rotary_size=32, max_position=64)
    rotary = RotaryTable(rope, max_context=64, device="cpu")
    block = PreAttention(
        layer=LAYER, norm=norm, qkv=torch.ones(WIDTH, 64), qkv_bias=None, rotary=rotary, q_norm=norm, k_norm=norm
    )
    pages = torch.zeros(9, 16, 2, 64)
    for rows in ROWS:
        x, slots, positions = torch.ones(rows, 64), torch.arange(rows), torch.zeros(rows, dtype=torch.int64)
        write = KVWrite(slots=slots, k=pages, v=pages, page_size=16, layout="nhd-paged")
        for residual in (None, x):
            ops.pre_attention(block, x, residual, TwinContext(ops, positions, write=write))
        ops._gated("silu", torch.ones(rows, 160))
    assert kernels(compiled) == {"_gated": 1, "_heads": 1, "_norm": 2}


def test_draws_of_all_batches_use_the_same_kernels(compiled: set[tuple[str, str]]) -> None:
    """One for rows that are all greedy, and two for any others: whatever they ask for, and however far rows lie apart."""
    ops = TritonOps(KERNELS)
    draws = (Draw(), Draw(temperature=0.0), Draw(top_k=1), Draw(top_p=0.5, min_p=1.0), Draw(top_k=16))
    for rows in ROWS:
        logits = torch.zeros(rows, 1016)[:, :1000]
        for first in range(len(draws)):
            ops.sample(logits, sampling_rows([draws[(first + row) % len(draws)] for row in range(rows)]))
        ops.sample(logits, sampling_rows([Draw(temperature=0.0)] * rows))
    assert kernels(compiled) == {"race": 1, "survey": 2}
