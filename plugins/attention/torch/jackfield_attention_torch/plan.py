"""What one batch looks like to this backend: buckets of rows that go through one SDPA call together.

Rows of a bucket have the same number of new tokens; a decode step is the bucket whose rows have one. Shorter rows of a
bucket are padded by repeating their own last token under a mask, never with foreign slots: what another request left in
memory, NaN included, cannot reach a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import AttentionBatch, AttentionLayer, AttentionPlan
from jackfield.layers.to_device import to_device

_PADDED_SHARE = 0.75  # a row joins a bucket whose longest row it fills to this share at least
_MOST_SCORES = 1 << 22  # scores (per head) of a bucket with several rows; bounds scratch memory


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What a layer lets a query see: layers of equal sight share slots and masks."""

    group: str
    window: int | None
    causal: bool


def sight_of(layer: AttentionLayer) -> Sight:
    """The sight of a layer."""
    return Sight(group=layer.group, window=layer.window, causal=layer.causal)


@dataclass(frozen=True, kw_only=True)
class View:
    """A bucket's keys under one sight.

    slots     int64 [rows, length]
    mask      bool [rows, 1, q_len, length], True where seen; None: everything is seen, or `diagonal`
    diagonal  the plain causal square, q_len == length
    """

    slots: torch.Tensor
    mask: torch.Tensor | None
    diagonal: bool


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Rows that are computed together. tokens: int64 [rows * q_len], where their new tokens stand."""

    tokens: torch.Tensor
    rows: int
    q_len: int
    views: Mapping[Sight, View]


class TorchPlan(AttentionPlan):
    """The buckets of one batch, and the slots that its new tokens are written to."""

    __slots__ = ("buckets", "out_slots")

    def __init__(self, buckets: list[Bucket], out_slots: Mapping[str, torch.Tensor]) -> None:
        self.buckets = buckets
        self.out_slots = out_slots


def make_plan(batch: AttentionBatch, tables: Mapping[str, torch.Tensor], sights: Iterable[Sight]) -> TorchPlan:
    """Host work on the host's lengths; whatever needs the true lengths is computed on the device."""
    host, device = batch.host, batch.rows.device
    sights = tuple(sights)
    starts = np.concatenate([[0], np.cumsum(host.q_lens, dtype=np.int64)])
    buckets = []
    for members in bucket_members(host.q_lens, host.kv_lens):
        q_len = int(host.q_lens[members[0]])
        tokens = (starts[members][:, None] + np.arange(q_len)).reshape(-1)
        index = to_device(members, device)
        rows, kv_lens = batch.rows[index].long(), batch.kv_lens[index].long()
        upper, longest = host.kv_lens[members] if host.exact else None, int(host.kv_lens[members].max())
        where = to_device(tokens, device)
        among = None  # one new token sees itself under any mask
        if batch.mask is not None and q_len > 1:
            among = batch.mask.among[where].view(len(members), q_len, -1)
        views = {
            sight: _view(sight, tables[sight.group], rows, kv_lens, q_len, longest, upper, among) for sight in sights
        }
        buckets.append(Bucket(tokens=where, rows=len(members), q_len=q_len, views=views))
    return TorchPlan(buckets, batch.out_slots)


def bucket_members(q_lens: NDArray[np.int32], kv_lens: NDArray[np.int32]) -> list[NDArray[np.int64]]:
    """Batch indices of each bucket. Rows of several new tokens share one only if their KV is equally long."""
    order = np.lexsort((-kv_lens, q_lens))
    buckets: list[list[int]] = []
    for i in order.tolist():
        if buckets:
            first = buckets[-1][0]  # the longest of its bucket
            q_len, longest = int(q_lens[i]), int(kv_lens[first])
            shortest = longest if q_len > 1 else longest * _PADDED_SHARE
            fits = (len(buckets[-1]) + 1) * q_len * longest <= _MOST_SCORES
            if q_lens[first] == q_len and kv_lens[i] >= shortest and fits:
                buckets[-1].append(i)
                continue
        buckets.append([i])
    return [np.array(bucket, dtype=np.int64) for bucket in buckets]


def _view(
    sight: Sight,
    table: torch.Tensor,
    rows: torch.Tensor,
    kv_lens: torch.Tensor,
    q_len: int,
    longest: int,
    exact_lens: NDArray[np.int32] | None,
    among: torch.Tensor | None,
) -> View:
    """Slots and mask of one bucket. rows, kv_lens int64 [rows]; exact_lens: the same lengths if the host knows them; among: see
    `tree_sees`."""
    window = sight.window
    length = longest if window is None else min(longest, window + q_len - 1)
    # The first key that any query of the row sees.
    first = torch.zeros_like(kv_lens) if window is None else (kv_lens - q_len - window + 1).clamp_(min=0)
    position = first[:, None] + torch.arange(length, device=rows.device)  # [rows, length]
    slots = table[rows[:, None], torch.minimum(position, kv_lens[:, None] - 1)].long()

    if exact_lens is not None and among is None:
        even = bool((exact_lens == longest).all())
        if even and sight.causal and window is None and q_len == longest:
            return View(slots=slots, mask=None, diagonal=True)
        # One query sees every key that was gathered, if no row is padded (with a window: if none is shorter than it).
        unpadded = even if window is None else bool((exact_lens >= length).all())
        if unpadded and (q_len == 1 or (not sight.causal and window is None)):
            return View(slots=slots, mask=None, diagonal=False)

    query = kv_lens[:, None] - q_len + torch.arange(q_len, device=rows.device)  # [rows, q_len]
    seen = (position < kv_lens[:, None])[:, None, :].expand(-1, q_len, -1)
    if among is not None:
        seen = seen & tree_sees(among, position, query, kv_lens - q_len)
    elif sight.causal:
        seen = seen & (position[:, None, :] <= query[:, :, None])
    if window is not None:
        seen = seen & (position[:, None, :] > query[:, :, None] - window)
    return View(slots=slots, mask=seen[:, None], diagonal=False)


def tree_sees(among: torch.Tensor, key: torch.Tensor, query: torch.Tensor, cached: torch.Tensor) -> torch.Tensor:
    """What a `TreeMask` lets a query see of its row, bool [rows, queries, keys]; beyond the row's end anything.

    among bool [rows, queries, most new tokens]; key [rows, keys] and query [rows, queries] are positions, cached [rows] that of
    the row's first new token.
    """
    new = key - cached[:, None]
    index = new.clamp(0, among.shape[2] - 1)[:, None, :].expand(-1, query.shape[1], -1)
    return (new < 0)[:, None, :] | among.gather(2, index) | (key[:, None, :] == query[:, :, None])
