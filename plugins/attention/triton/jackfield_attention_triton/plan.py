"""Plans: the launches of each kind of layer, with their tiles on the device and scratch memory for their splits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import AttentionBatch, AttentionPlan, GraphShape
from jackfield_attention_triton.launch_shapes import Cut, LaunchShape, batch_launches, graph_launch
from jackfield_attention_triton.layers import LayerKind
from jackfield_attention_triton.tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class Splits:
    """length: int32 [4], whose first is the keys of one split, found on the device; parts, marks: float32, see
    `attend_kernel`."""

    cut: Cut
    length: torch.Tensor
    parts: torch.Tensor
    marks: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Launch:
    """tiles: int32 [num_tiles, 2], see `tile_of`; None: tile i is item i."""

    shape: LaunchShape
    tiles: torch.Tensor | None
    splits: Splits | None

    @property
    def num_tiles(self) -> int:
        return self.shape.tiles.items.size


class TritonPlan(AttentionPlan):
    """The batch's tensors, which the kernels read when they run, and what to launch. among: uint8, None without a tree."""

    __slots__ = ("among", "kv_lens", "launches", "out_slots", "q_starts", "rows")

    def __init__(self, batch: AttentionBatch, launches: Mapping[LayerKind, tuple[Launch, ...]]) -> None:
        self.rows, self.q_starts, self.kv_lens = batch.rows, batch.q_starts, batch.kv_lens
        self.out_slots = batch.out_slots
        self.among = None if batch.mask is None else batch.mask.among.contiguous().view(torch.uint8)
        self.launches = launches


class Planner:
    """Makes the plans of one backend. tunings: how each kind of layer is cut; workspace: see `AttentionContext`."""

    def __init__(
        self, tunings: Mapping[LayerKind, Tuning], workspace: Callable[[int], torch.Tensor], device: torch.device
    ) -> None:
        self._tunings = tunings
        self._workspace = workspace
        self._device = device

    def plan(self, batch: AttentionBatch) -> TritonPlan:
        """Enqueues the copies of the tiles, nothing else."""
        host, tree = batch.host, batch.mask is not None
        shapes = {
            kind: batch_launches(kind, tuning, host.q_lens, host.kv_lens, tree=tree)
            for kind, tuning in self._tunings.items()
        }
        return TritonPlan(batch, self._launches(shapes))

    def plan_graph(self, batch: AttentionBatch, shape: GraphShape) -> TritonPlan:
        """A plan that fits all batches of the shape."""
        shapes = {
            kind: [graph_launch(kind, tuning, shape.rows, shape.max_kv)] for kind, tuning in self._tunings.items()
        }
        return TritonPlan(batch, self._launches(shapes))

    def _launches(self, shapes: Mapping[LayerKind, list[LaunchShape]]) -> dict[LayerKind, tuple[Launch, ...]]:
        """Launches run one after the other, so all use the same scratch memory."""
        cuts = sum(shape.cut is not None for made in shapes.values() for shape in made)
        scratch = lengths = None
        if cuts:
            room = 4 * max(sum(_floats(kind, shape)) for kind, made in shapes.items() for shape in made)
            scratch = self._workspace(room)[:room].view(torch.float32)
            # 16 bytes each: kernels are compiled once for pointers so aligned, and once more for others.
            lengths = iter(torch.empty((cuts, 4), dtype=torch.int32, device=self._device).unbind())
        tables: dict[bytes, torch.Tensor] = {}  # layers of several kinds may share their tiles
        launches = {}
        for kind, made in shapes.items():
            done = []
            for shape in made:
                tiles = splits = None
                if not shape.tiles.every:
                    table = shape.tiles.table()
                    tiles = tables.get(table.tobytes())
                    if tiles is None:
                        tiles = tables[table.tobytes()] = _uploaded(table, self._device)
                if shape.cut is not None:
                    assert scratch is not None
                    assert lengths is not None
                    parts, marks = _floats(kind, shape)
                    splits = Splits(
                        cut=shape.cut,
                        length=next(lengths),
                        parts=scratch[:parts],
                        marks=scratch[parts : parts + marks],
                    )
                done.append(Launch(shape=shape, tiles=tiles, splits=splits))
            launches[kind] = tuple(done)
        return launches


def _floats(kind: LayerKind, shape: LaunchShape) -> tuple[int, int]:
    """Elements of `parts` and `marks`."""
    places = 0 if shape.cut is None else shape.width * kind.num_heads * shape.cut.count
    return places * kind.v_head_size, places * 2


def _uploaded(array: NDArray[np.int32], device: torch.device) -> torch.Tensor:
    """`array` on the device; does not wait for the copy, which pinned memory makes possible."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)
