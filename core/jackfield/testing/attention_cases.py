"""Random attention batches over paged KV, for holding a backend against the reference.

A case is hard on purpose: pages are scattered, everything that no row owns is NaN (so is the output before the call),
and the KV of the new tokens is not written yet. It knows no backend.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from jackfield.hookspecs import (
    AttentionBackend,
    AttentionBatch,
    AttentionContext,
    AttentionLayer,
    AttentionLimits,
    AttentionMode,
    HostLengths,
    KVGroup,
    KVLayout,
    KVTensors,
)
from jackfield.model_executor.kv_tensors import allocate_kv
from jackfield.model_executor.workspace import Workspace
from jackfield.testing.reference import read_slots, reference_attention, write_slots

TOLERANCE: Mapping[torch.dtype, float] = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Largest error against the float64 reference on the same (rounded) inputs, as a share of the largest value."""


@dataclass(frozen=True, kw_only=True)
class AttentionCase:
    """What to try. `lengths` holds (cached, new) tokens of each row."""

    lengths: Sequence[tuple[int, int]]
    layout: KVLayout
    num_heads: int = 4
    num_kv_heads: int = 2
    head_size: int = 16
    v_head_size: int | None = None
    page_size: int = 1
    window: int | None = None
    soft_cap: float | None = None
    causal: bool = True
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    exact: bool = True
    seed: int = 0

    @property
    def layer(self) -> AttentionLayer:
        return AttentionLayer(
            id=0,
            group="full",
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_size=self.head_size,
            v_head_size=self.v_head_size or self.head_size,
            scale=self.head_size**-0.5,
            window=self.window,
            soft_cap=self.soft_cap,
            causal=self.causal,
        )


@dataclass(frozen=True, kw_only=True)
class PreparedCase:
    """The tensors of a case. `kv` holds the cached tokens; q, k, v are the new ones'."""

    case: AttentionCase
    context: AttentionContext
    kv: KVTensors
    batch: AttentionBatch
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    true_kv_lens: torch.Tensor = field(repr=False)


def prepare(case: AttentionCase) -> PreparedCase:
    """Lay the case out: scattered pages, poisoned memory, batch order unlike row order."""
    random = np.random.default_rng(case.seed)
    torch_random = torch.Generator().manual_seed(case.seed)
    layer, n = case.layer, len(case.lengths)
    cached = np.array([c for c, _ in case.lengths], dtype=np.int32)
    q_lens = np.array([new for _, new in case.lengths], dtype=np.int32)
    kv_lens = (cached + q_lens).astype(np.int32)
    pages_of = -(-kv_lens // case.page_size)
    num_pages = int(pages_of.sum()) + 3
    width = int(pages_of.max()) * case.page_size + 5  # wider than any row, and no multiple of a page
    group = KVGroup(
        name="full",
        kind="full",
        layers=(0,),
        num_kv_heads=case.num_kv_heads,
        head_size=case.head_size,
        v_head_size=layer.v_head_size,
    )
    kv = allocate_kv((group,), {"full": case.layout}, num_pages, case.page_size, case.dtype, torch.device(case.device))
    for tensors in kv["full"].tensors.values():
        for tensor in tensors:
            tensor.fill_(math.nan)  # also the dummy page: a backend may not let what it holds reach a real row
    table = torch.zeros((n + 2, width), dtype=torch.int32)
    rows = (random.permutation(n) + 1).astype(np.int32)
    free = random.permutation(np.arange(1, num_pages + 1))
    taken = 0
    for row, count in zip(rows, pages_of, strict=True):
        mine = free[taken : taken + count]
        taken += int(count)
        slots = (mine[:, None] * case.page_size + np.arange(case.page_size)).reshape(-1)
        table[row, : slots.size] = torch.from_numpy(slots.astype(np.int32))

    def randn(tokens: int, heads: int, size: int) -> torch.Tensor:
        return torch.randn(tokens, heads, size, generator=torch_random).to(case.dtype).to(case.device)

    total = int(q_lens.sum())
    q = randn(total, case.num_heads, case.head_size)
    k = randn(total, case.num_kv_heads, case.head_size)
    v = randn(total, case.num_kv_heads, layer.v_head_size)
    out_slots = []
    for row, before, after in zip(rows.tolist(), cached.tolist(), kv_lens.tolist(), strict=True):
        old = table[row, :before].long().to(case.device)
        write_slots(kv["full"], "k", 0, old, randn(before, case.num_kv_heads, case.head_size))
        write_slots(kv["full"], "v", 0, old, randn(before, case.num_kv_heads, layer.v_head_size))
        out_slots.append(table[row, before:after].long())
    table = table.to(case.device)
    if bool((q_lens == 1).all()):
        mode = AttentionMode.DECODE
    else:
        mode = AttentionMode.EXTEND
    slack = 0 if case.exact else 3
    upper = kv_lens + slack
    batch = AttentionBatch(
        mode=mode,
        rows=torch.from_numpy(rows.copy()).to(case.device),
        q_starts=torch.from_numpy(np.concatenate([[0], np.cumsum(q_lens)]).astype(np.int32)).to(case.device),
        kv_lens=torch.from_numpy(kv_lens.copy()).to(case.device),
        out_slots={"full": torch.cat(out_slots).to(case.device)},
        host=HostLengths(q_lens=q_lens, kv_lens=upper.astype(np.int32), exact=case.exact),
        max_q=int(q_lens.max()),
        max_kv=int(upper.max()),
    )
    context = AttentionContext(
        kind="attention",
        name="case",
        instance="case",
        phases=("prefill", "decode"),
        layers=(layer,),
        groups=(group,),
        layouts={"full": case.layout},
        page_size=case.page_size,
        tables={"full": table},
        limits=AttentionLimits(max_rows=n + 2, max_tokens=total, max_context=width),
        device=case.device,
        dtype=str(case.dtype).removeprefix("torch."),
        workspace=Workspace(case.device),
    )
    return PreparedCase(
        case=case,
        context=context,
        kv=kv["full"],
        batch=batch,
        q=q,
        k=k,
        v=v,
        true_kv_lens=torch.from_numpy(kv_lens.copy()),
    )


def run(prepared: PreparedCase, backend: AttentionBackend, *, written: bool = False) -> torch.Tensor:
    """One `plan` and `attend` into an output full of NaN. `written`: the KV is in place already, k and v are None."""
    backend.bind({"full": prepared.kv})
    layer = prepared.case.layer
    out = torch.full(
        (prepared.q.shape[0], layer.num_heads, layer.v_head_size),
        math.nan,
        dtype=prepared.q.dtype,
        device=prepared.q.device,
    )
    k: torch.Tensor | None = prepared.k
    v: torch.Tensor | None = prepared.v
    if written:
        write_slots(prepared.kv, "k", 0, prepared.batch.out_slots["full"], prepared.k)
        write_slots(prepared.kv, "v", 0, prepared.batch.out_slots["full"], prepared.v)
        k = v = None
    backend.attend(backend.plan(prepared.batch), layer, prepared.q, k, v, out)
    return out


def check(case: AttentionCase, make: Callable[[AttentionContext], AttentionBackend], **changes: Any) -> None:
    """Hold a backend against the reference on one case; AssertionError says by how much it is off."""
    prepared = prepare(replace(case, **changes) if changes else case)
    case = prepared.case
    out = run(prepared, make(prepared.context))
    slots = prepared.batch.out_slots["full"]
    assert torch.equal(read_slots(prepared.kv, "k", 0, slots), prepared.k), "the new keys are not at their slots"
    assert torch.equal(read_slots(prepared.kv, "v", 0, slots), prepared.v), "the new values are not at their slots"
    wanted = reference_attention(
        case.layer,
        prepared.kv,
        prepared.context.tables["full"],
        prepared.batch.rows.cpu().numpy(),
        prepared.batch.host.q_lens,
        prepared.true_kv_lens.numpy(),
        prepared.q,
    )
    assert not torch.isnan(out).any(), "rows of the output were not written, or foreign memory was read"
    error = float((out.double().cpu() - wanted).abs().max() / wanted.abs().max())
    assert error <= TOLERANCE[case.dtype], f"off by {error:.2e}, allowed {TOLERANCE[case.dtype]:.0e}: {case}"
