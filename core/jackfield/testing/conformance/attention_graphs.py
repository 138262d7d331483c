"""The use of a backend's graph plan as the core makes it: tensors that stay where they are, padding, and several batches one
after the other. Where the device can record, the work is recorded once and replayed; elsewhere it is called."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import AttentionBackend, AttentionBatch, AttentionMode, GraphShape, HostLengths
from jackfield.model_executor.device import Graph, open_device
from jackfield.testing.attention_batches import PreparedCase
from jackfield.testing.conformance.attention_probes import waits

Inputs = dict[int, tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]]


class GraphUse:
    """One graph plan of `rows` rows, for parts of a case whose rows have one new token each."""

    def __init__(self, prepared: PreparedCase, backend: AttentionBackend, rows: int) -> None:
        case, batch = prepared.case, prepared.batch
        device = batch.rows.device
        self._case, self._backend, self._rows = case, backend, rows
        self._batch = AttentionBatch(
            mode=AttentionMode.DECODE,
            rows=torch.zeros(rows, dtype=torch.int32, device=device),
            q_starts=torch.arange(rows + 1, dtype=torch.int32, device=device),
            kv_lens=torch.ones(rows, dtype=torch.int32, device=device),
            out_slots={name: torch.zeros(rows, dtype=torch.int64, device=device) for name in batch.out_slots},
            host=_lengths(np.ones(rows, dtype=np.int32), case.exact),
            max_q=1,
            max_kv=1,
        )
        self._inputs: Inputs = {
            layer: (_room(q, rows), None if k is None else _room(k, rows), None if v is None else _room(v, rows))
            for layer, (q, k, v) in prepared.inputs.items()
        }
        self._out = {
            layer.id: self._inputs[layer.id][0].new_empty(rows, layer.num_heads, layer.v_head_size)
            for layer in case.layers
        }
        self._device = open_device(device)
        self._graph: Graph | None = None
        longest = prepared.context.limits.max_context
        self._plan = backend.plan_graph(self._batch, GraphShape(rows=rows, max_kv=longest))

    def attend(self, some: PreparedCase) -> dict[int, torch.Tensor]:
        """Layer id -> output of the part's rows. AssertionError where `refresh` waits for the device."""
        n = len(some.batch.rows)
        batch = self._fill(some)
        found = waits(self._case.device, lambda: self._backend.refresh(self._plan, batch))
        assert not found, f"refresh waits for the device: {found}"
        for out in self._out.values():
            out.fill_(math.nan)
        if not self._device.records:
            self._work()
        else:
            if self._graph is None:
                self._graph = self._device.capture(self._work, self._device.graph_pool())
            self._graph.replay()
        return {layer: out[:n].clone() for layer, out in self._out.items()}

    def _work(self) -> None:
        self._backend.in_graph(self._plan)
        for layer in self._case.layers:
            self._backend.attend(self._plan, layer, *self._inputs[layer.id], self._out[layer.id])

    def _fill(self, some: PreparedCase) -> AttentionBatch:
        """The part in the tensors that stay, and padding behind it: the dummy row, one token, slot 0."""
        n, mine, theirs = len(some.batch.rows), self._batch, some.batch
        for to, source, padding in (
            (mine.rows, theirs.rows, 0),
            (mine.kv_lens, theirs.kv_lens, 1),
            *((mine.out_slots[name], slots, 0) for name, slots in theirs.out_slots.items()),
        ):
            to[:n] = source
            to[n:] = padding
        for layer, given in some.inputs.items():
            for into, part in zip(self._inputs[layer], given, strict=True):
                if into is not None and part is not None:
                    into[:n] = part
        kv_lens = np.ones(self._rows, dtype=np.int32)
        kv_lens[:n] = theirs.host.kv_lens
        return replace(mine, host=_lengths(kv_lens, theirs.host.exact), max_kv=int(kv_lens.max()))


def _lengths(kv_lens: NDArray[np.int32], exact: bool) -> HostLengths:
    return HostLengths(q_lens=np.ones(len(kv_lens), dtype=np.int32), kv_lens=kv_lens, exact=exact)


def _room(tensor: torch.Tensor, rows: int) -> Any:
    """For so many tokens; what nobody fills are ones."""
    return torch.ones((rows, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
