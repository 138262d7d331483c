"""Random attention batches over paged KV, for holding a backend against the reference.

A case is hard on purpose: pages are scattered, everything that no row owns is NaN, the KV of the new tokens is not written
yet, and what a window layer may not read is somebody else's. It knows no backend; `attention_cases` runs one on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import (
    AttentionBatch,
    AttentionContext,
    AttentionLayer,
    AttentionLimits,
    AttentionMode,
    HostLengths,
    KVGroup,
    KVLayout,
    KVTensors,
    TreeMask,
)
from jackfield.model_executor.dtypes import dtype_name
from jackfield.model_executor.kv_tensors import allocate_kv
from jackfield.model_executor.workspace import Workspace
from jackfield.testing.reference import write_slots
from jackfield.testing.trees import chains, trees


@dataclass(frozen=True, kw_only=True)
class AttentionCase:
    """What to try. `lengths` holds (cached, new) tokens of each row.

    scale      None: head_size ** -0.5
    mixed      the batch is sent as mode MIXED
    kv_dtype   in which the KV is kept; None: `dtype`
    tree       "random": each row's new tokens are a tree of drafts; "chain": one whose mask says what causality does
    exact      False: the host's lengths are upper bounds
    placement  another number lays the same queries, keys and values elsewhere, in other rows
    variety    several layers instead of one: a plain one, one with the window if there is one (in a KV group with its own
               table), another plain one, and one with the soft cap and another scale that reads the first one's KV
    """

    lengths: Sequence[tuple[int, int]]
    layout: KVLayout
    num_heads: int = 4
    num_kv_heads: int = 2
    head_size: int = 16
    v_head_size: int | None = None
    page_size: int = 1
    scale: float | None = None
    window: int | None = None
    soft_cap: float | None = None
    causal: bool = True
    mixed: bool = False
    tree: str | None = None
    variety: bool = False
    dtype: torch.dtype = torch.float32
    kv_dtype: torch.dtype | None = None
    device: str = "cpu"
    exact: bool = True
    placement: int = 0
    seed: int = 0

    @property
    def layer(self) -> AttentionLayer:
        """The layer with all that the case asks for."""
        return AttentionLayer(
            id=0,
            group="full" if self.window is None else "window",
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_size=self.head_size,
            v_head_size=self.v_head_size or self.head_size,
            scale=self.head_size**-0.5 if self.scale is None else self.scale,
            window=self.window,
            soft_cap=self.soft_cap,
            causal=self.causal,
        )

    @property
    def layers(self) -> tuple[AttentionLayer, ...]:
        """All layers of the run, by id."""
        if not self.variety:
            return (self.layer,)
        plain = replace(self.layer, group="full", window=None, soft_cap=None)
        windowed = [replace(self.layer, id=1, soft_cap=None)] if self.window is not None else []
        other = replace(plain, id=1 + len(windowed))
        sharing = replace(plain, id=other.id + 1, soft_cap=self.soft_cap, scale=plain.scale / 2, kv_source=0)
        return (plain, *windowed, other, sharing)

    @property
    def groups(self) -> tuple[KVGroup, ...]:
        """The KV groups that the layers form; a layer that reads another's KV has none of its own."""
        own = [layer for layer in self.layers if layer.kv_source is None]
        return tuple(
            KVGroup(
                name=name,
                kind=name,
                layers=tuple(layer.id for layer in own if layer.group == name),
                num_kv_heads=self.num_kv_heads,
                head_size=self.head_size,
                v_head_size=self.v_head_size or self.head_size,
                window=self.window if name == "window" else None,
            )
            for name in dict.fromkeys(layer.group for layer in own)
        )


@dataclass(frozen=True, kw_only=True)
class PreparedCase:
    """The tensors of a case.

    pools    group name -> KV, which holds the cached tokens
    inputs   layer id -> (q, k, v) of the new tokens; k and v None for a layer that reads another's KV
    """

    case: AttentionCase
    context: AttentionContext
    pools: Mapping[str, KVTensors]
    batch: AttentionBatch
    inputs: Mapping[int, tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]] = field(repr=False)
    true_kv_lens: torch.Tensor = field(repr=False)

    @property
    def kv(self) -> KVTensors:
        """The first layer's."""
        return self.pools[self.case.layers[0].group]

    @property
    def q(self) -> torch.Tensor:
        """The first layer's, as `k` and `v`."""
        return self.inputs[0][0]

    @property
    def k(self) -> torch.Tensor:
        k = self.inputs[0][1]
        assert k is not None
        return k

    @property
    def v(self) -> torch.Tensor:
        v = self.inputs[0][2]
        assert v is not None
        return v

    @property
    def out_slots(self) -> torch.Tensor:
        """Where the first layer's new KV goes."""
        return self.batch.out_slots[self.case.layers[0].group]


def prepare(case: AttentionCase, **context: Any) -> PreparedCase:
    """Lay the case out: scattered pages, poisoned memory, batch order unlike row order. context: fields of the
    `AttentionContext` that differ."""
    random = np.random.default_rng((case.placement, case.seed))
    n = len(case.lengths)
    cached = np.array([c for c, _ in case.lengths], dtype=np.int32)
    q_lens = np.array([new for _, new in case.lengths], dtype=np.int32)
    kv_lens = (cached + q_lens).astype(np.int32)
    rows = (random.permutation(n) + 1).astype(np.int32)
    num_pages = int((-(-kv_lens // case.page_size)).sum()) + 3
    pools = _poisoned(case, num_pages)
    tables = {group.name: _table(case, random, rows, cached, kv_lens, num_pages, group.window) for group in case.groups}
    old_slots, out_slots = {}, {}
    for name, table in tables.items():
        floor = np.zeros_like(cached) if name == "full" else window_floor(case, cached)
        spans = list(zip(rows.tolist(), floor.tolist(), cached.tolist(), kv_lens.tolist(), strict=True))
        old_slots[name] = torch.cat([table[row, first:before] for row, first, before, _ in spans]).long()
        out_slots[name] = torch.cat([table[row, before:after] for row, _, before, after in spans]).long()

    generator = torch.Generator().manual_seed(case.seed)

    def randn(tokens: int, heads: int, size: int) -> torch.Tensor:
        return torch.randn(tokens, heads, size, generator=generator).to(case.dtype).to(case.device)

    total = int(q_lens.sum())
    inputs: dict[int, tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]] = {}
    for layer in case.layers:
        q = randn(total, layer.num_heads, layer.head_size)
        if layer.kv_source is not None:
            inputs[layer.id] = (q, None, None)
            continue
        sizes = {"k": layer.head_size, "v": layer.v_head_size}
        k, v = (randn(total, layer.num_kv_heads, size) for size in sizes.values())
        inputs[layer.id] = (q, k, v)
        old = old_slots[layer.group].to(case.device)
        for role, size in sizes.items():
            write_slots(pools[layer.group], role, layer.id, old, randn(len(old), layer.num_kv_heads, size))

    upper = (kv_lens + (0 if case.exact else 3)).astype(np.int32)
    batch = AttentionBatch(
        mode=_mode(case, q_lens),
        rows=torch.from_numpy(rows.copy()).to(case.device),
        q_starts=torch.from_numpy(np.concatenate([[0], np.cumsum(q_lens)]).astype(np.int32)).to(case.device),
        kv_lens=torch.from_numpy(kv_lens.copy()).to(case.device),
        out_slots={name: slots.to(case.device) for name, slots in out_slots.items()},
        host=HostLengths(q_lens=q_lens, kv_lens=upper, exact=case.exact),
        max_q=int(q_lens.max()),
        max_kv=int(upper.max()),
        mask=None
        if case.tree is None
        else TreeMask(among={"random": trees, "chain": chains}[case.tree](q_lens, random).to(case.device)),
    )
    fields: dict[str, Any] = {
        "phases": ("prefill", "decode"),
        "layers": case.layers,
        "groups": case.groups,
        "layouts": dict.fromkeys(pools, case.layout),
        "page_size": case.page_size,
        "tables": {name: table.to(case.device) for name, table in tables.items()},
        "limits": AttentionLimits(max_rows=n + 2, max_tokens=total, max_context=next(iter(tables.values())).shape[1]),
        "device": case.device,
        "dtype": dtype_name(case.dtype),
        "kv_dtype": None if case.kv_dtype in (None, case.dtype) else dtype_name(case.kv_dtype),
        "workspace": Workspace(case.device),
    }
    return PreparedCase(
        case=case,
        context=AttentionContext(kind="attention", name="case", instance="case", **{**fields, **context}),
        pools=pools,
        batch=batch,
        inputs=inputs,
        true_kv_lens=torch.from_numpy(kv_lens.copy()),
    )


def part(prepared: PreparedCase, members: Sequence[int]) -> PreparedCase:
    """A batch of some of the case's rows, in the same memory. Mode EXTEND, or DECODE if each has one new token."""
    batch, at = prepared.batch, list(members)
    q_lens, kv_lens = batch.host.q_lens[at], batch.host.kv_lens[at]
    starts = np.concatenate([[0], np.cumsum(batch.host.q_lens)])
    tokens = torch.from_numpy(np.concatenate([np.arange(starts[i], starts[i + 1]) for i in at])).to(batch.rows.device)
    return replace(
        prepared,
        batch=replace(
            batch,
            mode=AttentionMode.DECODE if bool((q_lens == 1).all()) else AttentionMode.EXTEND,
            rows=batch.rows[at],
            q_starts=torch.from_numpy(np.concatenate([[0], np.cumsum(q_lens)]).astype(np.int32)).to(batch.rows.device),
            kv_lens=batch.kv_lens[at],
            out_slots={name: slots[tokens] for name, slots in batch.out_slots.items()},
            host=replace(batch.host, q_lens=q_lens, kv_lens=kv_lens),
            max_q=int(q_lens.max()),
            max_kv=int(kv_lens.max()),
            mask=None
            if batch.mask is None
            else TreeMask(among=batch.mask.among[tokens][:, : int(q_lens.max())].contiguous()),
        ),
        inputs={
            layer: (q[tokens], None if k is None else k[tokens], None if v is None else v[tokens])
            for layer, (q, k, v) in prepared.inputs.items()
        },
        true_kv_lens=prepared.true_kv_lens[at],
    )


def _mode(case: AttentionCase, q_lens: NDArray[np.int32]) -> AttentionMode:
    if case.mixed:
        return AttentionMode.MIXED
    single = bool((q_lens == 1).all()) and case.tree is None
    return AttentionMode.DECODE if single else AttentionMode.EXTEND


def window_floor(case: AttentionCase, cached: Any) -> Any:
    """First position of each row that its new tokens see through the window."""
    assert case.window is not None
    return np.maximum(0, cached - case.window + 1)


def _poisoned(case: AttentionCase, num_pages: int) -> dict[str, KVTensors]:
    """KV full of NaN, the dummy page too: a backend may not let what it holds reach a real row."""
    layouts = {group.name: case.layout for group in case.groups}
    dtype, device = case.kv_dtype or case.dtype, torch.device(case.device)
    pools = allocate_kv(case.groups, layouts, num_pages, case.page_size, dtype, device)
    for kv in pools.values():
        for tensors in kv.tensors.values():
            for tensor in tensors:
                tensor.fill_(math.nan if tensor.is_floating_point() else 0)
    return pools


def _table(
    case: AttentionCase,
    random: np.random.Generator,
    rows: Any,
    cached: Any,
    kv_lens: Any,
    num_pages: int,
    window: int | None,
) -> torch.Tensor:
    """int32 [rows + 2, wider than any row]. What lies before a window's first visible token names the last page, which
    holds NaN: as in a run whose window pool has given it to another request."""
    pages_of = -(-kv_lens // case.page_size)
    width = int(pages_of.max()) * case.page_size + 5  # no multiple of a page
    table = torch.zeros((len(rows) + 2, width), dtype=torch.int32)
    free = random.permutation(np.arange(1, num_pages))
    taken = 0
    for i, (row, count) in enumerate(zip(rows, pages_of, strict=True)):
        mine = free[taken : taken + count]
        taken += int(count)
        slots = (mine[:, None] * case.page_size + np.arange(case.page_size)).reshape(-1).astype(np.int32)
        if window is not None:
            slots[: window_floor(case, cached)[i]] = num_pages * case.page_size
        table[row, : slots.size] = torch.from_numpy(slots)
    return table
