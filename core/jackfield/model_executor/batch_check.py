"""The scheduler's side of the bargain, checked on the host before any state changes.

A batch that breaks it would read or write foreign memory on the device, where nobody notices; so every launch is
checked, with array operations only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import ModelWorkerBatch, WorkerLimits


class InvalidBatch(ValueError):
    """The scheduler sent a batch that the contract forbids; nothing of it was applied."""


def check_batch(batch: ModelWorkerBatch, limits: WorkerLimits, *, pools: bool = False) -> None:
    """Raises InvalidBatch naming the field and the offending number. pools: the run gives no tokens, but pooled vectors."""
    n = batch.rows.size
    _require(
        (batch.pool is not None) == pools,
        batch,
        f"`pool` is {'not ' if pools else ''}set in a run that {'pools' if pools else 'generates'}",
    )
    if batch.pool is not None:
        _require(batch.pool.size == n, batch, f"`pool` has {batch.pool.size} entries for {n} rows")
        _require(not batch.sample.any(), batch, "a row is sampled in a run that pools")
    for name in ("new_tokens", "computed", "relay", "sample"):
        size = getattr(batch, name).size
        _require(size == n, batch, f"`{name}` has {size} entries for {n} rows")
    opened = np.array([row.row for row in batch.opened], dtype=np.int64)
    for name, rows in (
        ("rows", batch.rows),
        ("opened", opened),
        ("closed", batch.closed),
        ("writes.rows", batch.writes.rows),
    ):
        _within(rows, 1, limits.max_rows - 1, batch, f"`{name}` holds row", "of the request-to-token table")
        if name != "writes.rows":
            _require(np.unique(rows).size == rows.size, batch, f"`{name}` names a row twice")
    for row in batch.opened:
        types = row.token_types.size
        _require(
            types in (0, row.history.size),
            batch,
            f"row {row.row} has {types} token types for {row.history.size} tokens",
        )
        _require(row.adapter == 0, batch, f"row {row.row} wants adapter {row.adapter}; this worker has none")
    _check_writes(batch, limits)
    _check_window(batch, limits)
    _require(not batch.wait_for, batch, f"it waits for tickets {batch.wait_for}, but this worker makes no copies")
    if n == 0:
        _require(batch.token_ids.size == 0, batch, "there are token ids, but no rows")
        return
    _within(batch.new_tokens, 1, limits.max_context, batch, "`new_tokens` holds", "")
    total = int(batch.new_tokens.sum(dtype=np.int64))
    _require(total <= limits.max_tokens, batch, f"{total} new tokens, more than the limit of {limits.max_tokens}")
    _require(batch.token_ids.size == total, batch, f"{batch.token_ids.size} token ids for {total} new tokens")
    _within(batch.token_ids, 0, limits.vocab_size - 1, batch, "token id", "of the vocabulary")
    _within(batch.computed, 0, limits.max_context, batch, "`computed` holds", "")
    ends = batch.computed.astype(np.int64) + batch.new_tokens
    _within(ends, 1, limits.max_context, batch, "a row would end at", "of the context")


def _check_writes(batch: ModelWorkerBatch, limits: WorkerLimits) -> None:
    writes = batch.writes
    sizes = (writes.rows.size, writes.starts.size, writes.lengths.size)
    _require(len(set(sizes)) == 1, batch, f"`writes` has runs of unequal number (rows, starts, lengths: {sizes})")
    if writes.rows.size == 0:
        _require(writes.slots.size == 0, batch, "`writes` has slots, but no runs")
        return
    _within(writes.lengths, 0, limits.max_context, batch, "`writes.lengths` holds", "")
    total = int(writes.lengths.sum(dtype=np.int64))
    _require(writes.slots.size == total, batch, f"`writes` has {writes.slots.size} slots for runs of {total}")
    _within(writes.starts, 0, limits.max_context, batch, "`writes.starts` holds", "")
    ends = writes.starts.astype(np.int64) + writes.lengths
    _within(ends, 0, limits.max_context, batch, "a run of `writes` ends at", "of the context")
    last = limits.page_size + limits.total_slots - 1
    _within(writes.slots, limits.page_size, last, batch, "`writes.slots` holds slot", "of the pool")


def _check_window(batch: ModelWorkerBatch, limits: WorkerLimits) -> None:
    pages, to = batch.window.pages, batch.window.window_pages
    _require(pages.size == to.size, batch, f"`window` maps {pages.size} pages to {to.size}")
    if pages.size:
        _require(limits.window is not None, batch, "`window` maps pages, but this worker has no window pool")
        _within(pages, 1, limits.total_slots // limits.page_size, batch, "`window` maps page", "of the pool")
        _within(to, 0, limits.window_slots // limits.page_size, batch, "`window` maps to page", "of the window pool")
        _require(np.unique(pages).size == pages.size, batch, "`window` maps a page twice")


def _within(values: NDArray[Any], low: int, high: int, batch: ModelWorkerBatch, what: str, of: str) -> None:
    if values.size and (values.min() < low or values.max() > high):
        bad = values[(values < low) | (values > high)][0]
        raise InvalidBatch(f"step {batch.step}: {what} {bad}, outside {low} .. {high} {of}".rstrip())


def _require(condition: bool, batch: ModelWorkerBatch, text: str) -> None:
    if not condition:
        raise InvalidBatch(f"step {batch.step}: {text}")
