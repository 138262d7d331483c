"""Decode steps to try recorded work on: rows over the KV of a prompt that nobody asked for, in slots that are free before and
after."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import ModelWorkerBatch, RowWrites, WindowWrites, WorkerLimits
from jackfield.model_executor.forward_batch import make_forward_batch
from jackfield.model_executor.model_runner import ModelRunner
from jackfield.model_executor.req_to_token import ReqToTokenTable
from jackfield.model_executor.window_table import WindowTable

_PROMPT = 40  # tokens before the ones that are decoded, about


class SampleSteps:
    """Decode steps over rows that share one prompt's KV: row i has as many whole pages of it as fit `i`, and a page of its own
    for its new token. Everything that it takes is free before and after."""

    def __init__(
        self,
        limits: WorkerLimits,
        table: ReqToTokenTable,
        tables: Mapping[str, ReqToTokenTable | WindowTable],
        newest: torch.Tensor,
    ) -> None:
        self._limits, self._table, self._tables, self._newest = limits, table, tables, newest
        self._page = limits.page_size
        pages = limits.total_slots // self._page
        window = next((one for one in tables.values() if isinstance(one, WindowTable)), None)
        if window is not None:
            pages = min(pages, limits.window_slots // self._page)
        most = min(limits.max_context - 1, limits.max_tokens, _PROMPT + self._page) // self._page
        self._shared = min(most, pages // 2)
        self.rows = min(pages - self._shared, limits.max_rows - 1)
        self._random = np.random.default_rng(0)
        self._window = window
        self._map(np.arange(1, self._shared + self.rows + 1, dtype=np.int32))

    def fill(self, runner: ModelRunner) -> None:
        """Compute the prompt's KV, then hand the rows their slots."""
        tokens = self._shared * self._page
        if tokens:
            self._write(np.array([1]), [np.arange(self._page, self._page + tokens)])
            batch = self._batch(np.array([1]), np.array([tokens]), np.array([0]), self._ids(tokens))
            runner.forward(make_forward_batch(batch, self._table, self._newest, self._tables))
        lengths = self._cached(np.arange(self.rows))
        own = (1 + self._shared + np.arange(self.rows)) * self._page
        prompts = [np.arange(self._page, self._page + length) for length in lengths]
        self._write(np.arange(1, self.rows + 1), [np.append(p, slot) for p, slot in zip(prompts, own, strict=True)])

    def step(self, rows: int, seed: int) -> ModelWorkerBatch:
        """A decode step of so many rows, other ones and in another order for each seed; every second one is relayed."""
        order = np.random.default_rng(seed).permutation(self.rows)[:rows]
        ids = self._ids(rows)
        relay = np.arange(rows) % 2 == 1
        at = self._table.device.upload(order[relay] + 1, np.int64)
        self._newest[at] = self._table.device.upload(ids[relay], np.int64)
        ids[relay] = 0
        return self._batch(order + 1, np.ones(rows), self._cached(order), ids, relay)

    def forget(self) -> None:
        """Give everything back."""
        rows = np.arange(1, self.rows + 1, dtype=np.int32)
        self._table.clear(rows)
        self._newest.zero_()
        self._map(np.zeros(self._shared + self.rows, dtype=np.int32))

    def _cached(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        return index % (self._shared + 1) * self._page

    def _ids(self, count: int) -> NDArray[np.int32]:
        return self._random.integers(0, self._limits.vocab_size, count, dtype=np.int32)

    def _write(self, rows: NDArray[np.int64], slots: list[NDArray[np.int64]]) -> None:
        self._table.apply(
            RowWrites(
                rows=rows.astype(np.int32),
                starts=np.zeros(len(rows), dtype=np.int32),
                lengths=np.array([len(one) for one in slots], dtype=np.int32),
                slots=np.concatenate(slots).astype(np.int32),
            )
        )

    def _map(self, window_pages: NDArray[np.int32]) -> None:
        if self._window is not None:
            pages = np.arange(1, len(window_pages) + 1, dtype=np.int32)
            self._window.apply(WindowWrites(pages=pages, window_pages=window_pages))

    @staticmethod
    def _batch(
        rows: NDArray[np.int64],
        new: NDArray[np.generic],
        computed: NDArray[np.int64],
        ids: NDArray[np.int32],
        relay: NDArray[np.bool_] | None = None,
    ) -> ModelWorkerBatch:
        return ModelWorkerBatch(
            step=0,
            rows=rows.astype(np.int32),
            new_tokens=new.astype(np.int32),
            computed=computed.astype(np.int32),
            token_ids=ids,
            relay=np.zeros(len(rows), dtype=np.bool_) if relay is None else relay,
            sample=np.ones(len(rows), dtype=np.bool_),
        )
