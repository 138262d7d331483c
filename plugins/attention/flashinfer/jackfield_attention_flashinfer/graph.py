"""A plan that the replays of one graph share.

What the graph recorded are addresses: of the pages, which the graph itself or `refresh` finds anew, and of what FlashInfer's
planner wrote, which `refresh` writes anew for each use. Planning is done by several wrappers in turn that write to the same
device memory, each out of pinned memory of its own, so that none has to wait until the device has taken the last plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from jackfield.hookspecs import AttentionBatch, AttentionPlan, GraphShape
from jackfield_attention_flashinfer.layer_kind import LayerKind
from jackfield_attention_flashinfer.pages import DevicePages, HostPages, host_pages, write_pages
from jackfield_attention_flashinfer.pool import Slot
from jackfield_attention_flashinfer.wrappers import Wrappers
from jackfield_attention_flashinfer.write import SlotWrites

_AT_FIRST = 2
"""Wrappers of a kind that are made with the plan: two steps may be in flight."""

_MOST_IN_GRAPH = 1 << 20
"""Pages up to which the graph finds them. It goes over all that its rows may ever have; where these are more, as with pages of
one token and a long context, `refresh` goes over those that they have, for some launches a step."""

Key = tuple[str, int | None]
"""KV group and window: what decides which pages a row reads."""


class GraphPlan(AttentionPlan):
    """batch: the one whose tensors are looked at anew; writes: group name -> where its new tokens go."""

    __slots__ = ("_pages", "_planners", "_tables", "_wrappers", "batch", "writes")

    def __init__(
        self,
        batch: AttentionBatch,
        shape: GraphShape,
        wrappers: Wrappers,
        tables: Mapping[str, torch.Tensor],
        kinds: tuple[LayerKind, ...],
        groups: tuple[str, ...],
        indices: dict[Key, torch.Tensor],
    ) -> None:
        """indices: memory for those of all graphs, of which one is replayed at a time; it is kept there."""
        self.batch = batch
        self.writes = {group: SlotWrites(batch.out_slots[group], wrappers.page_size) for group in groups}
        self._wrappers = wrappers
        self._tables = tables
        self._pages: dict[Key, DevicePages] = {}
        self._planners: dict[LayerKind, _Planners] = {}
        device = batch.rows.device
        for kind in kinds:
            longest = _host_pages(np.full(shape.rows, shape.max_kv, dtype=np.int32), kind, wrappers)
            key = (kind.group, kind.window)
            if key not in self._pages:
                if key not in indices or len(indices[key]) < longest.total:
                    indices[key] = DevicePages.empty(0, longest.total, device).indices
                own = DevicePages.empty(shape.rows, 0, device)
                self._pages[key] = replace(own, indices=indices[key][: longest.total])
            self._planners[kind] = _Planners(kind, wrappers, self._pages[key], longest)
        self.refresh(batch)
        self.follow()

    def wrapper(self, kind: LayerKind) -> Any:
        """The one whose `run` is recorded."""
        return self._planners[kind].recorded

    def follow(self) -> None:
        """Find pages and slots anew in the batch's tensors: device work alone, in memory that stays."""
        for writes in self.writes.values():
            writes.follow()
        for key, pages in self._pages.items():
            if len(pages.indices) <= _MOST_IN_GRAPH:
                self._write(key, pages)

    def refresh(self, batch: AttentionBatch) -> None:
        """Lay the work out for these lengths."""
        totals: dict[Key, int] = {}
        for kind, planners in self._planners.items():
            host = _host_pages(batch.host.kv_lens, kind, self._wrappers)
            planners.plan(host)
            totals[kind.group, kind.window] = host.total
        for key, pages in self._pages.items():  # over what the plans have written to the same places
            if len(pages.indices) > _MOST_IN_GRAPH:
                self._write(key, replace(pages, indices=pages.indices[: totals[key]]))

    def _write(self, key: Key, pages: DevicePages) -> None:
        group, window = key
        rows, kv_lens = self.batch.rows, self.batch.kv_lens
        q_lens = torch.ones_like(kv_lens)
        write_pages(pages, self._tables[group], rows, q_lens, kv_lens, window, self._wrappers.page_size)


def _host_pages(kv_lens: Any, kind: LayerKind, wrappers: Wrappers) -> HostPages:
    """As bounds, also where the host knows more: the buffers are sized by bounds, and the device finds the truth."""
    ones = np.ones(len(kv_lens), dtype=np.int32)
    return host_pages(ones, kv_lens, kind.window, wrappers.page_size, exact=False)


class _Planners:
    """The wrappers of one kind. recorded: the first of them."""

    def __init__(self, kind: LayerKind, wrappers: Wrappers, pages: DevicePages, longest: HostPages) -> None:
        self._kind = kind
        self._wrappers = wrappers
        self._pages = pages
        probe = wrappers.decode_in_graph(wrappers.layouts[kind.group], wrappers.scratch(1), pages)
        nbytes, own = wrappers.decode_sizes(probe, kind, longest)
        self._scratch = wrappers.scratch(nbytes)
        self._own = torch.empty(own, dtype=torch.uint8, device=wrappers.device)
        self._slots = [self._made() for _ in range(_AT_FIRST)]
        self.recorded = self._slots[0].wrapper
        for slot in self._slots:  # each knows the shape of its plan from now on
            self._plan_with(slot, longest)

    def plan(self, pages: HostPages) -> None:
        """By one whose last plan the device has taken."""
        slot = next((slot for slot in self._slots if slot.mark.passed()), None)
        if slot is None:
            slot = self._made()
            self._slots.append(slot)
        self._plan_with(slot, pages)

    def _plan_with(self, slot: Slot, pages: HostPages) -> None:
        self._wrappers.plan_decode(slot.wrapper, self._kind, pages, self._wrappers.no_indices())
        slot.mark.set()

    def _made(self) -> Slot:
        layout = self._wrappers.layouts[self._kind.group]
        wrapper = self._wrappers.decode_in_graph(layout, self._scratch, self._pages)
        wrapper.reset_workspace_buffer(self._scratch, self._own)
        return self._wrappers.slot(None, wrapper)
