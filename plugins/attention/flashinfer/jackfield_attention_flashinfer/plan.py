"""The plan of one batch: one of FlashInfer's plans for each kind of its layers.

Where the host knows the lengths, FlashInfer lays the work out by them and copies them to the device. Where they are upper
bounds, or a tree mask is there, the work is laid out by the bounds, and the device writes the true pages over FlashInfer's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import AttentionBatch, AttentionMode, AttentionPlan
from jackfield_attention_flashinfer.layer_kind import LayerKind
from jackfield_attention_flashinfer.mask import mask_starts, write_mask
from jackfield_attention_flashinfer.pages import DevicePages, HostPages, host_pages, write_pages
from jackfield_attention_flashinfer.pool import Buffers, Lease, Pool
from jackfield_attention_flashinfer.wrappers import Wrappers
from jackfield_attention_flashinfer.write import SlotWrites


class FlashInferPlan(AttentionPlan):
    """writes: group name -> where its new tokens go. Held: what the wrappers read and no one else refers to."""

    __slots__ = ("_held", "_leases", "writes")

    def __init__(self, writes: Mapping[str, SlotWrites], leases: Mapping[LayerKind, Lease], held: Any) -> None:
        self.writes = writes
        self._leases = leases
        self._held = held

    def wrapper(self, kind: LayerKind) -> Any:
        """The one to run for layers of this kind."""
        return self._leases[kind].slot.wrapper


class Planner:
    """Makes plans. tables: group name -> int32 [rows, max_context] slots."""

    def __init__(
        self,
        wrappers: Wrappers,
        tables: Mapping[str, torch.Tensor],
        kinds: tuple[LayerKind, ...],
        groups: tuple[str, ...],
    ) -> None:
        self._wrappers = wrappers
        self._tables = tables
        self._kinds = kinds
        self._groups = groups
        self._pool = Pool()

    def plan(self, batch: AttentionBatch) -> FlashInferPlan:
        """One of FlashInfer's plans for each kind. Raises BatchFault where scratch memory is too small."""
        leases: dict[LayerKind, Lease] = {}
        held: dict[Any, tuple[HostPages, torch.Tensor]] = {}
        for kind in self._kinds:
            if batch.host.exact and batch.mask is None:
                pages = held.get((kind.group, kind.window))
                if pages is None:
                    pages = held[kind.group, kind.window] = self._pages(batch, kind)
                leases[kind] = self._plain(batch, kind, *pages)
            else:
                leases[kind] = self._on_device(batch, kind)
        page_size = self._wrappers.page_size
        writes = {group: SlotWrites(batch.out_slots[group], page_size) for group in self._groups}
        return FlashInferPlan(writes, leases, held)

    def _pages(self, batch: AttentionBatch, kind: LayerKind) -> tuple[HostPages, torch.Tensor]:
        """The lengths for the host, and the indices on the device."""
        host = host_pages(batch.host.q_lens, batch.host.kv_lens, kind.window, self._wrappers.page_size, exact=True)
        device = DevicePages.empty(len(batch.host.q_lens), host.total, batch.rows.device)
        self._write(device, batch, kind)
        return host, device.indices

    def _write(self, into: DevicePages, batch: AttentionBatch, kind: LayerKind) -> torch.Tensor:
        return write_pages(
            into,
            self._tables[kind.group],
            batch.rows,
            batch.q_starts.diff(),
            batch.kv_lens,
            kind.window,
            self._wrappers.page_size,
        )

    def _plain(self, batch: AttentionBatch, kind: LayerKind, pages: HostPages, indices: torch.Tensor) -> Lease:
        wrappers, layout = self._wrappers, self._wrappers.layouts[kind.group]
        scratch = wrappers.scratch()
        if batch.mode is AttentionMode.DECODE:
            cores = wrappers.uses_tensor_cores(kind)
            key: tuple[object, ...] = ("decode", layout, cores, scratch.data_ptr())
            lease = self._pool.take(
                key, lambda: wrappers.slot(key, wrappers.decode(layout, scratch, tensor_cores=cores))
            )
            wrappers.plan_decode(lease.slot.wrapper, kind, pages, indices)
        else:
            kernels = wrappers.prefill_kernels(kind, batch.max_q)
            key = ("prefill", layout, kernels, scratch.data_ptr())
            lease = self._pool.take(key, lambda: wrappers.slot(key, wrappers.prefill(layout, scratch, kernels)))
            wrappers.plan_prefill(
                lease.slot.wrapper, kind, _starts(batch), pages, indices, whole=_sees_past_its_tile(kind, batch)
            )
        lease.slot.mark.set()
        return lease

    def _on_device(self, batch: AttentionBatch, kind: LayerKind) -> Lease:
        wrappers, layout = self._wrappers, self._wrappers.layouts[kind.group]
        q_lens, exact = batch.host.q_lens, batch.host.exact
        pages = host_pages(q_lens, batch.host.kv_lens, kind.window, wrappers.page_size, exact=exact)
        q_starts, starts = _starts(batch), mask_starts(q_lens, pages.kv_lens)
        rows, tokens = len(q_lens), _rounded(int(q_starts[-1]))
        capacity = _rounded(pages.total)
        bits = None if batch.mask is None else _rounded(int(starts[-1]))
        scratch = wrappers.scratch()
        key = ("on device", layout, rows, tokens, capacity, bits, scratch.data_ptr())

        def made() -> Any:
            buffers = self._buffers(rows, capacity, bits, batch.rows.device)
            return wrappers.slot(key, wrappers.prefill_on_device(layout, scratch, buffers, tokens), buffers)

        lease = self._pool.take(key, made)
        buffers = lease.slot.buffers
        assert buffers is not None
        wrappers.plan_prefill(
            lease.slot.wrapper,
            kind,
            q_starts,
            pages,
            wrappers.no_indices(),
            mask=buffers.mask,
            whole=not exact or _sees_past_its_tile(kind, batch),
        )
        lease.slot.mark.set()
        kept = self._write(buffers.pages, batch, kind)
        if batch.mask is not None and buffers.mask is not None and buffers.mask_starts is not None:
            buffers.mask_starts.copy_(wrappers.pinned(starts), non_blocking=True)
            write_mask(buffers.mask, buffers.mask_starts, batch.mask.among, batch.q_starts, kept)
        return lease

    def _buffers(self, rows: int, capacity: int, bits: int | None, device: torch.device) -> Buffers:
        def zeros(size: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        return Buffers(
            q_starts=zeros(rows + 1),
            pages=DevicePages.empty(rows, capacity, device),
            mask=None if bits is None else zeros(bits, torch.uint8),
            mask_starts=None if bits is None else zeros(rows + 1),
        )


def _starts(batch: AttentionBatch) -> NDArray[np.int32]:
    starts = np.zeros(len(batch.host.q_lens) + 1, dtype=np.int32)
    np.cumsum(batch.host.q_lens, out=starts[1:])
    return starts


def _rounded(size: int) -> int:
    """So that a few wrappers serve many sizes."""
    return 1 << (size - 1).bit_length()


def _sees_past_its_tile(kind: LayerKind, batch: AttentionBatch) -> bool:
    """FlashInfer's scheduler takes it that with a window a tile of queries sees no more than the window before its last one. What
    a query sees after itself may lie beyond; rows whose keys are not split see it all."""
    return kind.window is not None and (not kind.causal or batch.mask is not None)
