"""Log-probabilities of a step: which rows want them, their computation on the device, and the plain arrays that leave.

The values are the log-softmax of the model's raw logits in float32. Nothing here runs in a step in which no row wants any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import Logprobs, ModelWorkerBatch, RowOpen
from jackfield.layers.to_device import to_device

SLICE_ELEMENTS = 1 << 24
"""Most logits of prompt tokens at once: a prompt's length times the vocabulary is never held."""


@dataclass(frozen=True, kw_only=True)
class Entries:
    """On the device, or after `arrive` on the host. n entries.

    chosen       float32 [n]
    top_values   float32 [n, t]; top_ids int64 [n, t]
    ids_values   float32 [n, k], of which each row uses the first that it asked for
    """

    chosen: torch.Tensor
    top_values: torch.Tensor
    top_ids: torch.Tensor
    ids_values: torch.Tensor

    @classmethod
    def of(cls, logits: torch.Tensor, targets: torch.Tensor, top: int, ids: torch.Tensor) -> Entries:
        """logits float32 [n, vocab]; targets int64 [n]; ids int64 [n, k]."""
        values = torch.log_softmax(logits.float(), dim=-1)
        best = values.topk(top, dim=-1)
        return cls(
            chosen=values.gather(1, targets[:, None])[:, 0],
            top_values=best.values,
            top_ids=best.indices,
            ids_values=values.gather(1, ids),
        )

    @classmethod
    def joined(cls, parts: list[Entries]) -> Entries:
        return cls(
            chosen=torch.cat([part.chosen for part in parts]),
            top_values=torch.cat([part.top_values for part in parts]),
            top_ids=torch.cat([part.top_ids for part in parts]),
            ids_values=torch.cat([part.ids_values for part in parts]),
        )

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """All of them, in the order of the fields."""
        return self.chosen, self.top_values, self.top_ids, self.ids_values


@dataclass(kw_only=True)
class StepEntries:
    """What one step computes of log-probabilities.

    top            the most that any of its rows wants
    ids            int64 [n, k] of the batch's rows, padded with 0; ids_count int32 [n]
    places         int64 [p]: where, in the token dimension, the forwards stand that give prompt entries
    targets        int64 [p]: the tokens whose entries they are; owners int64 [p]: batch index
    sampled        int64 [w]: which of the sampled rows want entries
    slice_rows     most prompt entries for which logits are held at once
    """

    top: int
    ids: NDArray[np.int64]
    ids_count: NDArray[np.int32]
    places: NDArray[np.int64]
    targets: NDArray[np.int64]
    owners: NDArray[np.int64]
    sampled: NDArray[np.int64]
    slice_rows: int
    _parts: list[Entries] = field(default_factory=list)
    _raw: torch.Tensor | None = None

    def add_prompt(self, hidden: torch.Tensor, head: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """The prompt's entries, a slice of the vocabulary projection at a time. hidden [tokens, size]."""
        device = hidden.device
        places, targets = to_device(self.places, device), to_device(self.targets, device)
        ids = to_device(self.ids[self.owners], device)
        for begin in range(0, len(self.places), self.slice_rows):
            part = slice(begin, begin + self.slice_rows)
            logits = head(hidden.index_select(0, places[part]))
            self._parts.append(Entries.of(logits, targets[part], self.top, ids[part]))

    def keep_raw(self, logits: torch.Tensor) -> None:
        """Before anything shapes them: float32 [m, vocab] of the sampled rows."""
        if len(self.sampled):
            self._raw = logits.index_select(0, to_device(self.sampled, logits.device))

    def add_sampled(self, tokens: torch.Tensor, sampled_rows: NDArray[np.int64]) -> None:
        """tokens int64 [m], negative where a row failed; sampled_rows int64 [m]: batch index of each."""
        if self._raw is None:
            return
        device = tokens.device
        at = to_device(self.sampled, device)
        ids = to_device(self.ids[sampled_rows[self.sampled]], device)
        self._parts.append(Entries.of(self._raw, tokens[at].clamp(min=0), self.top, ids))
        self._raw = None

    def leave(self) -> tuple[torch.Tensor, ...]:
        """What is to be copied to the host, and then given to `arrive`; nothing where there is no entry."""
        if not self._parts:
            return ()
        self._parts = [Entries.joined(self._parts)]
        return self._parts[0].tensors()

    def arrive(self, tensors: Sequence[torch.Tensor]) -> None:
        """The copies of what `leave` gave, whose contents are there before `result` is asked for."""
        if self._parts:
            chosen, top_values, top_ids, ids_values = tensors
            self._parts = [Entries(chosen=chosen, top_values=top_values, top_ids=top_ids, ids_values=ids_values)]

    def result(self, sampled_rows: NDArray[np.int64], failed: NDArray[np.bool_]) -> Logprobs:
        """failed [n]: rows without entries."""
        rows = np.concatenate([self.owners, sampled_rows[self.sampled]])
        is_prompt = np.arange(len(rows)) < len(self.owners)
        kept = np.flatnonzero(~failed[rows])
        order = kept[np.argsort(rows[kept], kind="stable")]  # a row's prompt entries stand before its sampled one
        n = len(failed)
        rows = rows[order]
        starts = np.zeros(n + 1, dtype=np.int32)
        np.cumsum(np.bincount(rows, minlength=n), out=starts[1:])
        counts = self.ids_count[rows]
        ids_starts = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum(counts, out=ids_starts[1:])
        if self._parts:
            (all_of,) = self._parts
            chosen, top_values = all_of.chosen.numpy()[order], all_of.top_values.numpy()[order]
            top_ids, ids_values = all_of.top_ids.numpy()[order], all_of.ids_values.numpy()[order]
        else:
            chosen, top_ids = np.empty(0, dtype=np.float32), np.empty((0, self.top), dtype=np.int32)
            top_values, ids_values = top_ids.astype(np.float32), np.empty((0, self.ids.shape[1]), dtype=np.float32)
        return Logprobs(
            starts=starts,
            prompt=np.bincount(rows[is_prompt[order]], minlength=n).astype(np.int32),
            chosen=chosen,
            top_values=top_values,
            top_ids=top_ids.astype(np.int32),
            ids_values=ids_values[np.arange(self.ids.shape[1]) < counts[:, None]],
            ids_starts=ids_starts,
        )


class LogprobTable:
    """What each row wants, by row of the request-to-token table."""

    def __init__(self, max_rows: int, vocab_size: int) -> None:
        self._slice_rows = max(1, SLICE_ELEMENTS // vocab_size)
        self._wants = np.zeros(max_rows, dtype=np.bool_)
        self._wanting = 0  # rows that do
        self._top = np.zeros(max_rows, dtype=np.int32)
        self._start = np.zeros(max_rows, dtype=np.int32)
        self._end = np.zeros(max_rows, dtype=np.int32)
        self._ids = np.zeros((max_rows, 0), dtype=np.int64)
        self._ids_count = np.zeros(max_rows, dtype=np.int32)
        self._prompts: dict[int, NDArray[np.int32]] = {}

    def open(self, opened: RowOpen) -> None:
        row, spec = opened.row, opened.logprobs
        self._wants[row] = spec is not None
        if spec is None:
            return
        self._wanting += 1
        self._top[row], self._start[row], self._end[row] = spec.top, spec.prompt_start, spec.prompt_end
        count = len(spec.ids)
        if count > self._ids.shape[1]:
            wider = np.zeros((len(self._ids), count), dtype=np.int64)
            wider[:, : self._ids.shape[1]] = self._ids
            self._ids = wider
        self._ids[row] = 0
        self._ids[row, :count] = spec.ids
        self._ids_count[row] = count
        if spec.prompt_start < spec.prompt_end:
            self._prompts[row] = opened.history[: spec.prompt_end]

    def close(self, row: int) -> None:
        self._wanting -= int(self._wants[row])
        self._wants[row] = False
        self._prompts.pop(row, None)

    def step(self, batch: ModelWorkerBatch) -> StepEntries | None:
        """What this step must compute; None: no row of it wants anything."""
        if not self._wanting:
            return None
        rows = batch.rows
        wants = self._wants[rows]
        if not wants.any():
            return None
        first = np.maximum(self._start[rows], batch.computed + 1)
        count = np.minimum(self._end[rows], batch.computed + batch.new_tokens + 1) - first
        count = np.where(wants, np.maximum(count, 0), 0)
        asked = np.flatnonzero(count)
        q_starts = np.cumsum(batch.new_tokens) - batch.new_tokens
        places = [np.empty(0, dtype=np.int64)]
        targets = [np.empty(0, dtype=np.int64)]
        for i in asked.tolist():
            begin, end = int(first[i]), int(first[i] + count[i])
            places.append(np.arange(begin, end) - 1 - int(batch.computed[i]) + int(q_starts[i]))
            targets.append(self._prompts[int(rows[i])][begin:end].astype(np.int64))
        ids_count = np.where(wants, self._ids_count[rows], 0).astype(np.int32)
        return StepEntries(
            top=int(self._top[rows[wants]].max()),
            ids=self._ids[rows, : int(ids_count.max())],
            ids_count=ids_count,
            places=np.concatenate(places),
            targets=np.concatenate(targets),
            owners=np.repeat(asked, count[asked]),
            sampled=np.flatnonzero(wants[np.flatnonzero(batch.sample)]),
            slice_rows=self._slice_rows,
        )
