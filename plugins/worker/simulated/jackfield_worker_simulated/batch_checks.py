"""What can be wrong with a batch by itself, whatever the worker's state."""

from __future__ import annotations

import math

import numpy as np

from jackfield.hookspecs import ModelWorkerBatch, RowOpen, WorkerLimits
from jackfield_worker_simulated.errors import SimulationError, ensure


def check_batch(batch: ModelWorkerBatch, limits: WorkerLimits) -> None:
    """Raises SimulationError."""
    n = len(batch.rows)
    _is(batch.rows, "rows", np.int32, n)
    _is(batch.new_tokens, "new_tokens", np.int32, n)
    _is(batch.computed, "computed", np.int32, n)
    _is(batch.relay, "relay", np.bool_, n)
    _is(batch.sample, "sample", np.bool_, n)
    _is(batch.closed, "closed", np.int32, len(batch.closed))
    _are_rows(batch.rows, "rows", limits)
    _are_rows(batch.closed, "closed", limits)
    ensure(len(np.unique(batch.rows)) == n, "a row is in the batch twice")
    ensure(len(np.unique(batch.closed)) == len(batch.closed), "a row is closed twice in one batch")
    ensure(bool((batch.new_tokens >= 1).all()), "a row of the batch advances by no token")
    ensure(bool((batch.computed >= 0).all()), "a row has computed fewer than 0 tokens")
    total = int(batch.new_tokens.sum())
    _is(batch.token_ids, "token_ids", np.int32, total)
    if total > limits.max_tokens:
        raise SimulationError(f"{total} new tokens in one batch, the limit is {limits.max_tokens}")
    if total and not 0 <= int(batch.token_ids.min()) <= int(batch.token_ids.max()) < limits.vocab_size:
        raise SimulationError(f"a token id of the batch is outside 0 .. {limits.vocab_size - 1}")
    longest = int((batch.computed + batch.new_tokens).max()) if n else 0
    if longest > limits.max_context:
        raise SimulationError(f"a row grows to {longest} tokens, the limit is {limits.max_context}")
    relayed = batch.token_ids[np.cumsum(batch.new_tokens)[batch.relay] - 1]
    ensure(not relayed.any(), "a relayed token's place holds something else than the placeholder 0")
    ensure(not batch.wait_for, "the batch waits for copies, and this worker makes none")
    writes = batch.writes
    runs = len(writes.rows)
    for name in ("rows", "starts", "lengths"):
        _is(getattr(writes, name), f"writes.{name}", np.int32, runs)
    _is(writes.slots, "writes.slots", np.int32, int(writes.lengths.sum()))
    _are_rows(writes.rows, "writes.rows", limits)
    if runs:
        ensure(bool((writes.lengths >= 1).all()), "a run of row writes is empty")
        ensure(int(writes.starts.min()) >= 0, "a row write starts before position 0")
        end = int((writes.starts + writes.lengths).max())
        if end > limits.max_context:
            raise SimulationError(f"a row write ends at position {end}, a row has {limits.max_context}")
    for opened in batch.opened:
        check_open(opened, limits)


def check_open(opened: RowOpen, limits: WorkerLimits) -> None:
    """Raises SimulationError."""
    who = f"row {opened.row}, uid {opened.uid}"
    if not 0 < opened.row < limits.max_rows:
        raise SimulationError(f"{who}: rows go from 1 to {limits.max_rows - 1}")
    history = opened.history
    if not isinstance(history, np.ndarray) or history.dtype != np.int32 or history.ndim != 1:
        raise SimulationError(f"{who}: the history is no int32 [n] array")
    if not 0 < len(history) <= limits.max_context:
        raise SimulationError(f"{who}: a history of {len(history)} tokens; 1 to {limits.max_context} are possible")
    if not 0 <= int(history.min()) <= int(history.max()) < limits.vocab_size:
        raise SimulationError(f"{who}: the history has a token id outside 0 .. {limits.vocab_size - 1}")
    if not (math.isfinite(opened.temperature) and opened.temperature >= 0):
        raise SimulationError(f"{who}: temperature {opened.temperature}")
    if opened.top_k < 0 or not 0 < opened.top_p <= 1 or not 0 <= opened.min_p <= 1:
        raise SimulationError(f"{who}: top_k {opened.top_k}, top_p {opened.top_p}, min_p {opened.min_p}")
    if not 0 <= opened.seed < 1 << 64:
        raise SimulationError(f"{who}: the seed {opened.seed} has more than 64 bits")
    if opened.adapter < 0:
        raise SimulationError(f"{who}: adapter {opened.adapter}")


def _is(array: object, name: str, dtype: type[np.generic], length: int) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != (length,):
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise SimulationError(f"{name} is {found}, not {np.dtype(dtype)} ({length},)")


def _are_rows(rows: np.ndarray[tuple[int], np.dtype[np.int32]], name: str, limits: WorkerLimits) -> None:
    if len(rows) and not (int(rows.min()) > 0 and int(rows.max()) < limits.max_rows):
        raise SimulationError(f"{name} names a row outside 1 .. {limits.max_rows - 1}")
