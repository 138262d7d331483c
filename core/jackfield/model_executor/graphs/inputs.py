"""The tensors that recorded decode steps read: one block of memory, filled by one copy a step, and what the device makes of
it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import AttentionBatch, AttentionMode, HostLengths, ModelWorkerBatch
from jackfield.model_executor.req_to_token import ReqToTokenTable
from jackfield.model_executor.window_table import WindowTable

_ALIGNED = 16
"""Rows are rounded up to it, so that each field begins at a multiple of 16 bytes, as kernels like it."""

_FIELDS: Mapping[str, str] = {
    "ids": "int64",
    "positions": "int64",
    "rows": "int32",
    "kv_lens": "int32",
    "relay": "bool",
}


class GraphInputs:
    """Of the largest step; smaller ones read the first entries.

    From the host, in one copy: ids int64, positions int64, rows int32, kv_lens int32, relay bool.
    Made of them on the device, by `prepare`:
    tokens      int64: ids, but for relayed rows the newest token that was sampled for them
    out_slots   KV group -> int64

    A row of padding is the dummy row: row 0, position 0, kv_len 1, token 0; its slot is 0.
    """

    def __init__(
        self,
        most: int,
        table: ReqToTokenTable,
        tables: Mapping[str, ReqToTokenTable | WindowTable],
        newest: torch.Tensor,
    ) -> None:
        """most: rows of the largest step; tables: KV group -> where its slots stand, `table` itself or one made of it."""
        self._device, self._table, self._tables, self._newest = table.device, table, tables, newest
        there = table.device.torch_device
        self._room = -(-most // _ALIGNED) * _ALIGNED
        nbytes = sum(np.dtype(dtype).itemsize for dtype in _FIELDS.values()) * self._room
        self._block = torch.zeros(nbytes, dtype=torch.uint8, device=there)
        self._fields = self._views(self._block)
        self._tokens = torch.zeros(self._room, dtype=torch.int64, device=there)
        self._slots = {name: torch.zeros(self._room, dtype=torch.int64, device=there) for name in tables}
        self._q_starts = torch.arange(self._room + 1, dtype=torch.int32, device=there)
        self._ones: NDArray[np.int32] = np.ones(self._room, dtype=np.int32)
        self._ones.flags.writeable = False

    def fill(self, batch: ModelWorkerBatch, size: int) -> HostLengths:
        """Write the step, whose rows have one new token each, and padding up to `size`. Returns the lengths of all of these."""
        n = batch.rows.size
        image = np.zeros(self._block.numel(), dtype=np.uint8)
        fields = self._arrays(image)
        fields["ids"][:n] = batch.token_ids
        fields["positions"][:n] = batch.computed
        fields["rows"][:n] = batch.rows
        fields["kv_lens"][:] = 1
        kv_lens: NDArray[np.int32] = np.ones(size, dtype=np.int32)
        kv_lens[:n] = batch.computed + 1
        fields["kv_lens"][:size] = kv_lens
        fields["relay"][:n] = batch.relay
        self._device.fill(self._block, image)
        for other in {id(one): one for one in self._tables.values()}.values():
            if isinstance(other, WindowTable):
                other.look_up(batch.rows, batch.computed, kv_lens[:n])
        return HostLengths(q_lens=self._ones[:size], kv_lens=kv_lens, exact=True)

    def nobody(self, size: int) -> HostLengths:
        """Write padding alone. Returns its lengths."""
        image = np.zeros(self._block.numel(), dtype=np.uint8)
        self._arrays(image)["kv_lens"][:] = 1
        self._device.fill(self._block, image)
        return HostLengths(q_lens=self._ones[:size], kv_lens=self._ones[:size].copy())

    def prepare(self, size: int) -> None:
        """Device work alone, which may be recorded."""
        rows, positions = self._fields["rows"][:size].long(), self._fields["positions"][:size]
        ids, relay = self._fields["ids"][:size], self._fields["relay"][:size]
        self._tokens[:size].copy_(torch.where(relay, self._newest[rows], ids))
        slots = self._table.slots[rows, positions].long()
        for name, other in self._tables.items():
            self._slots[name][:size].copy_(other.translate(slots) if isinstance(other, WindowTable) else slots)

    def tokens(self, size: int) -> torch.Tensor:
        return self._tokens[:size]

    def positions(self, size: int) -> torch.Tensor:
        return self._fields["positions"][:size]

    def attention(self, size: int, host: HostLengths) -> AttentionBatch:
        """The step as attention sees it; the tensors are the same at each call."""
        return AttentionBatch(
            mode=AttentionMode.DECODE,
            rows=self._fields["rows"][:size],
            q_starts=self._q_starts[: size + 1],
            kv_lens=self._fields["kv_lens"][:size],
            out_slots={name: slots[:size] for name, slots in self._slots.items()},
            host=host,
            max_q=1,
            max_kv=int(host.kv_lens.max()),
        )

    def _views(self, block: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: block[place].view(getattr(torch, _FIELDS[name])) for name, place in self._places().items()}

    def _arrays(self, image: NDArray[np.uint8]) -> dict[str, NDArray[np.generic]]:
        return {name: image[place].view(_FIELDS[name]) for name, place in self._places().items()}

    def _places(self) -> dict[str, slice]:
        """Where in the block each field's bytes lie."""
        ends = [0, *accumulate(np.dtype(dtype).itemsize * self._room for dtype in _FIELDS.values())]
        return {name: slice(*place) for name, place in zip(_FIELDS, pairwise(ends), strict=True)}
