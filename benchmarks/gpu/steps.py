"""Steps for a worker, made as a scheduler makes them: rows, scattered pages, prefill chunks and decode steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import ModelWorker, ModelWorkerBatch, PendingResult, RowOpen, RowWrites, WorkerResult

DEPTH = 2
"""Steps in flight, as under the event loop `overlap`: the host prepares one while the device works on the one before."""


class Rows:
    """The rows of one run of a worker. Pages are handed out in a shuffled order, and never twice."""

    def __init__(self, worker: ModelWorker, seed: int = 0) -> None:
        self._worker = worker
        limits = worker.limits
        self._page = limits.page_size
        random = np.random.default_rng(seed)
        self._pages = (random.permutation(limits.total_slots // limits.page_size) + 1).astype(np.int32)
        self._used = 0
        self._free = list(range(limits.max_rows - 1, 0, -1))
        self._uid = self._step = 0
        self._open: list[RowOpen] = []
        self._closed: list[int] = []
        self._writes: list[tuple[int, NDArray[np.int32]]] = []

    def open(
        self,
        tokens: NDArray[np.int32],
        room: int,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> int:
        """A row that has slots for `room` tokens. Returns its number."""
        row, pages = self._free.pop(), -(-room // self._page)
        if self._used + pages > len(self._pages):
            raise ValueError(f"{pages} pages of KV are wanted, {len(self._pages) - self._used} are left")
        taken = self._pages[self._used : self._used + pages]
        self._used += pages
        slots = (taken[:, None] * self._page + np.arange(self._page, dtype=np.int32)).reshape(-1)[:room]
        self._uid += 1
        self._open.append(
            RowOpen(
                row=row,
                uid=self._uid,
                history=tokens,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=0.0,
                seed=seed,
            )
        )
        self._writes.append((row, slots.astype(np.int32)))
        return row

    def close(self, rows: Sequence[int]) -> None:
        """They end with the next step; when none is left, all pages are free again."""
        self._closed += rows
        self._free += reversed(rows)
        if len(self._free) == self._worker.limits.max_rows - 1:
            self._used = 0

    def step(
        self,
        rows: Sequence[int] | NDArray[np.int32],
        computed: NDArray[np.int32],
        tokens: Sequence[NDArray[np.int32] | None] | None,
        *,
        sample: bool | Sequence[bool] = True,
    ) -> PendingResult:
        """Launch and sample. tokens: the new ones of each row; None, for a row or for all: its newest, which the worker knows."""
        rows = np.asarray(rows, dtype=np.int32)
        new = np.ones(len(rows), dtype=np.int32)
        ids = np.zeros(len(rows), dtype=np.int32)
        relay = np.ones(len(rows), dtype=np.bool_)
        if tokens is not None:
            known = [np.zeros(1, dtype=np.int32) if one is None else one for one in tokens]
            new = np.array([len(one) for one in known], dtype=np.int32)
            ids = np.concatenate(known).astype(np.int32)
            relay = np.array([one is None for one in tokens])
        self._step += 1
        batch = ModelWorkerBatch(
            step=self._step,
            rows=rows,
            new_tokens=new,
            computed=computed.astype(np.int32),
            token_ids=ids,
            relay=relay,
            sample=np.broadcast_to(np.asarray(sample), len(rows)).copy(),
            opened=tuple(self._open),
            closed=np.array(self._closed, dtype=np.int32),
            writes=self._take_writes(),
        )
        self._open, self._closed = [], []
        return self._worker.sample(self._worker.launch(batch))

    def flush(self) -> None:
        """A step without rows, which takes along what was closed."""
        self.step([], np.empty(0, dtype=np.int32), None).result()

    def decode(self, rows: Sequence[int], computed: int, steps: int) -> Iterator[WorkerResult]:
        """The results of `steps` steps in their order, each one asked for when the next DEPTH - 1 are in flight."""
        numbers, flying = np.array(rows, dtype=np.int32), deque[PendingResult]()
        for step in range(steps):
            flying.append(self.step(numbers, np.full(len(rows), computed + step, dtype=np.int32), None))
            if len(flying) == DEPTH:
                yield flying.popleft().result()
        while flying:
            yield flying.popleft().result()

    def _take_writes(self) -> RowWrites:
        writes, self._writes = self._writes, []
        if not writes:
            return RowWrites()
        return RowWrites(
            rows=np.array([row for row, _ in writes], dtype=np.int32),
            starts=np.zeros(len(writes), dtype=np.int32),
            lengths=np.array([len(slots) for _, slots in writes], dtype=np.int32),
            slots=np.concatenate([slots for _, slots in writes]),
        )
