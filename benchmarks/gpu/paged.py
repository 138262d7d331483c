"""One attention backend over random pages, for timing: as many layers as it takes to outgrow the device's cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from benchmarks.gpu.providers import Provider

from jackfield.hookspecs import (
    CORE_LAYOUTS,
    AttentionBatch,
    AttentionLayer,
    AttentionLimits,
    AttentionMode,
    HostLengths,
    KVGroup,
)
from jackfield.model_executor.kv_tensors import allocate_kv
from jackfield.model_executor.workspace import Workspace

HEADS, KV_HEADS, HEAD = 32, 8, 128
CACHE = 512 << 20
"""Bytes of keys and values among which the calls take turns."""


@dataclass(frozen=True)
class Shape:
    """rows of `length` tokens each, the last `new` of which are asked for."""

    rows: int
    new: int
    length: int

    def told(self) -> dict[str, int]:
        return {"rows": self.rows, "new": self.new, "length": self.length}


class Paged:
    """layers: how many take turns; bytes, flops: of one layer's call, at the least."""

    def __init__(self, provider: Provider, shape: Shape, *, device: str, dtype: str, tiny: bool) -> None:
        heads, kv_heads, head = (2, 1, 16) if tiny else (HEADS, KV_HEADS, HEAD)
        page = 4 if tiny else 16
        number = torch.empty(0, dtype=getattr(torch, dtype))
        tokens = shape.rows * shape.length
        once = 2 * tokens * kv_heads * head * number.itemsize
        self.layers = 1 if tiny else max(1, min(16, -(-CACHE // once)))
        pairs = shape.rows * (shape.new * (shape.length - shape.new) + shape.new * (shape.new + 1) // 2)
        self.bytes, self.flops = once, 4 * pairs * heads * head
        self._shape = shape
        layers = tuple(
            AttentionLayer(
                id=i,
                group="full",
                num_heads=heads,
                num_kv_heads=kv_heads,
                head_size=head,
                v_head_size=head,
                scale=head**-0.5,
            )
            for i in range(self.layers)
        )
        group = KVGroup(
            name="full",
            kind="full",
            layers=tuple(range(self.layers)),
            num_kv_heads=kv_heads,
            head_size=head,
            v_head_size=head,
        )
        layout = CORE_LAYOUTS[provider.row["layouts"][0]]
        pages = shape.rows * -(-shape.length // page)
        where = torch.device(device)
        kv = allocate_kv((group,), {"full": layout}, pages, page, number.dtype, where)
        random = torch.Generator(where).manual_seed(0)
        for tensors in kv["full"].tensors.values():
            for tensor in tensors:
                tensor.normal_(generator=random)
        table = self._table(pages, page)
        self._tables = table.to(where)
        self._backend = provider.make(
            {
                "phases": ("prefill", "decode"),
                "layers": layers,
                "groups": (group,),
                "layouts": {"full": layout},
                "page_size": page,
                "tables": {"full": self._tables},
                "limits": AttentionLimits(
                    max_rows=shape.rows, max_tokens=shape.rows * shape.new, max_context=table.shape[1]
                ),
                "device": device,
                "dtype": dtype,
                "workspace": Workspace(where),
            }
        )
        self._backend.bind(kv)
        self._plan = self._backend.plan(self._batch(where))
        self._layers = layers
        self._q = self._random(shape.rows * shape.new, heads, head, number.dtype)
        self._k, self._v = (self._random(shape.rows * shape.new, kv_heads, head, number.dtype) for _ in range(2))
        self._out = torch.empty_like(self._q)

    def attend(self, i: int) -> None:
        """The write of the new keys and values too, as in a model."""
        self._backend.attend(self._plan, self._layers[i % self.layers], self._q, self._k, self._v, self._out)

    def dense(self) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        """q [rows, heads, new, head], and for each layer k and v [rows, kv_heads, length, head], for the dense twin."""
        rows, length = self._shape.rows, self._shape.length
        q = self._q.unflatten(0, (rows, self._shape.new)).transpose(1, 2).contiguous()
        shape = (rows, self._k.shape[1], length, self._k.shape[2])
        keys, values = ([torch.randn(shape, device=q.device, dtype=q.dtype) for _ in self._layers] for _ in range(2))
        return q, keys, values

    def _random(self, tokens: int, heads: int, size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(tokens, heads, size, device=self._tables.device, dtype=dtype)

    def _table(self, pages: int, page: int) -> torch.Tensor:
        """int32 [rows + 1, length in whole pages]; pages lie in a shuffled order."""
        each = pages // self._shape.rows
        order = np.random.default_rng(0).permutation(pages).astype(np.int32).reshape(self._shape.rows, each) + 1
        slots = (order[:, :, None] * page + np.arange(page, dtype=np.int32)).reshape(self._shape.rows, each * page)
        return torch.from_numpy(np.concatenate([np.zeros((1, each * page), dtype=np.int32), slots]))

    def _batch(self, where: torch.device) -> AttentionBatch:
        rows, new, length = self._shape.rows, self._shape.new, self._shape.length
        q_lens, kv_lens = np.full(rows, new, dtype=np.int32), np.full(rows, length, dtype=np.int32)
        return AttentionBatch(
            mode=AttentionMode.DECODE if new == 1 else AttentionMode.EXTEND,
            rows=torch.arange(1, rows + 1, dtype=torch.int32, device=where),
            q_starts=torch.arange(0, (rows + 1) * new, new, dtype=torch.int32, device=where),
            kv_lens=torch.from_numpy(kv_lens).to(where),
            out_slots={"full": self._tables[1:, length - new : length].reshape(-1).long()},
            host=HostLengths(q_lens=q_lens, kv_lens=kv_lens),
            max_q=new,
            max_kv=length,
        )
