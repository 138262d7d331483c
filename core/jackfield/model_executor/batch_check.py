"""The scheduler's side of the bargain, checked on the host before any state changes.

A batch that breaks it would read or write foreign memory on the device, where nobody notices; so every launch is
checked, with array operations, or Python's own where so few numbers are looked at that these are faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import ModelWorkerBatch, WorkerLimits

_FEW = 64
"""Numbers up to which Python's minimum, sum and set of a list beat NumPy's reductions."""


class InvalidBatch(ValueError):
    """The scheduler sent a batch that the contract forbids; nothing of it was applied."""


def check_batch(batch: ModelWorkerBatch, limits: WorkerLimits, *, pools: bool = False) -> None:
    """Raises InvalidBatch naming the field and the offending number. pools: the run gives no tokens, but pooled vectors."""
    n = batch.rows.size
    if (batch.pool is not None) != pools:
        told = f"`pool` is {'not ' if pools else ''}set in a run that {'pools' if pools else 'generates'}"
        raise _refusal(batch, told)
    if batch.pool is not None:
        if batch.pool.size != n:
            raise _refusal(batch, f"`pool` has {batch.pool.size} entries for {n} rows")
        if batch.sample.any():
            raise _refusal(batch, "a row is sampled in a run that pools")
    if not batch.new_tokens.size == batch.computed.size == batch.relay.size == batch.sample.size == n:
        for name in ("new_tokens", "computed", "relay", "sample"):
            if (size := getattr(batch, name).size) != n:
                raise _refusal(batch, f"`{name}` has {size} entries for {n} rows")
    _check_rows(batch, limits)
    _check_writes(batch, limits)
    _check_window(batch, limits)
    if batch.wait_for:
        raise _refusal(batch, f"it waits for tickets {batch.wait_for}, but this worker makes no copies")
    if n == 0:
        if batch.token_ids.size:
            raise _refusal(batch, "there are token ids, but no rows")
        return
    _within(batch.new_tokens, 1, limits.max_context, batch, "`new_tokens` holds", "")
    total = _total(batch.new_tokens)
    if total > limits.max_tokens:
        raise _refusal(batch, f"{total} new tokens, more than the limit of {limits.max_tokens}")
    if batch.token_ids.size != total:
        raise _refusal(batch, f"{batch.token_ids.size} token ids for {total} new tokens")
    _within(batch.token_ids, 0, limits.vocab_size - 1, batch, "token id", "of the vocabulary")
    _within(batch.computed, 0, limits.max_context, batch, "`computed` holds", "")
    ends = batch.computed.astype(np.int64) + batch.new_tokens
    _within(ends, 1, limits.max_context, batch, "a row would end at", "of the context")


def _check_rows(batch: ModelWorkerBatch, limits: WorkerLimits) -> None:
    named: list[tuple[str, NDArray[Any]]] = [("rows", batch.rows), ("writes.rows", batch.writes.rows)]
    if batch.opened or batch.closed.size:
        opened = np.array([row.row for row in batch.opened], dtype=np.int64)
        named += [("opened", opened), ("closed", batch.closed)]
    for name, rows in named:
        _within(rows, 1, limits.max_rows - 1, batch, f"`{name}` holds row", "of the request-to-token table")
        if name != "writes.rows" and not _distinct(rows):
            raise _refusal(batch, f"`{name}` names a row twice")
    for row in batch.opened:
        types = row.token_types.size
        if types not in (0, row.history.size):
            raise _refusal(batch, f"row {row.row} has {types} token types for {row.history.size} tokens")
        if row.adapter:
            raise _refusal(batch, f"row {row.row} wants adapter {row.adapter}; this worker has none")


def _check_writes(batch: ModelWorkerBatch, limits: WorkerLimits) -> None:
    writes = batch.writes
    if not writes.rows.size == writes.starts.size == writes.lengths.size:
        sizes = (writes.rows.size, writes.starts.size, writes.lengths.size)
        raise _refusal(batch, f"`writes` has runs of unequal number (rows, starts, lengths: {sizes})")
    if writes.rows.size == 0:
        if writes.slots.size:
            raise _refusal(batch, "`writes` has slots, but no runs")
        return
    _within(writes.lengths, 0, limits.max_context, batch, "`writes.lengths` holds", "")
    total = _total(writes.lengths)
    if writes.slots.size != total:
        raise _refusal(batch, f"`writes` has {writes.slots.size} slots for runs of {total}")
    _within(writes.starts, 0, limits.max_context, batch, "`writes.starts` holds", "")
    ends = writes.starts.astype(np.int64) + writes.lengths
    _within(ends, 0, limits.max_context, batch, "a run of `writes` ends at", "of the context")
    last = limits.page_size + limits.total_slots - 1
    _within(writes.slots, limits.page_size, last, batch, "`writes.slots` holds slot", "of the pool")


def _check_window(batch: ModelWorkerBatch, limits: WorkerLimits) -> None:
    pages, to = batch.window.pages, batch.window.window_pages
    if pages.size != to.size:
        raise _refusal(batch, f"`window` maps {pages.size} pages to {to.size}")
    if pages.size:
        if limits.window is None:
            raise _refusal(batch, "`window` maps pages, but this worker has no window pool")
        _within(pages, 1, limits.total_slots // limits.page_size, batch, "`window` maps page", "of the pool")
        _within(to, 0, limits.window_slots // limits.page_size, batch, "`window` maps to page", "of the window pool")
        if not _distinct(pages):
            raise _refusal(batch, "`window` maps a page twice")


def _within(values: NDArray[Any], low: int, high: int, batch: ModelWorkerBatch, what: str, of: str) -> None:
    if not values.size:
        return
    if values.size <= _FEW:
        some = values.tolist()
        good = min(some) >= low and max(some) <= high
    else:
        good = values.min() >= low and values.max() <= high
    if not good:
        bad = values[(values < low) | (values > high)][0]
        raise _refusal(batch, f"{what} {bad}, outside {low} .. {high} {of}".rstrip())


def _total(values: NDArray[Any]) -> int:
    return sum(values.tolist()) if values.size <= _FEW else int(values.sum(dtype=np.int64))


def _distinct(values: NDArray[Any]) -> bool:
    if values.size <= _FEW:
        return len(set(values.tolist())) == values.size
    return np.unique(values).size == values.size


def _refusal(batch: ModelWorkerBatch, text: str) -> InvalidBatch:
    return InvalidBatch(f"step {batch.step}: {text}")
