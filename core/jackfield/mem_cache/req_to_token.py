"""The host's copy of the request-to-token table, and the record of its changes that the worker gets with the next batch.
Knows row numbers and slots, not requests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import RowWrites

_Run = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]


class OutOfRows(Exception):
    """Every row is taken."""


class ReqToTokenPool:
    """`table[row, position]` is the KV slot of a request's token. Row 0 is the dummy row and never handed out.

    The table is a whole number of pages wide, because a request owns whole pages; the worker's is `max_context` wide, so
    that changes at or beyond `max_context` stay on the host.
    """

    def __init__(self, max_rows: int, max_context: int, page_size: int = 1) -> None:
        if max_rows < 2:
            raise ValueError(f"max_rows is {max_rows}; row 0 is the dummy row, so at least 2 are needed")
        width = -(-max_context // page_size) * page_size
        self.max_rows = max_rows
        self.max_context = max_context
        self.table: NDArray[np.int32] = np.zeros((max_rows, width), dtype=np.int32)
        self._free = list(range(max_rows - 1, 0, -1))
        self._used = np.zeros(max_rows, dtype=np.bool_)
        self._pending: list[_Run] = []

    def available(self) -> int:
        """Free rows."""
        return len(self._free)

    def alloc(self) -> int:
        """Take a row. Raises OutOfRows."""
        if not self._free:
            raise OutOfRows(f"all {self.max_rows - 1} rows are taken")
        row = self._free.pop()
        self._used[row] = True
        return row

    def free(self, row: int) -> None:
        """Give a row back, and forget changes of it that were not sent. Raises ValueError for a row that is not taken."""
        if not (0 < row < self.max_rows) or not self._used[row]:
            raise ValueError(f"row {row} is given back, but it is not taken")
        self._used[row] = False
        self._free.append(row)
        if self._pending:
            self._pending = [kept for run in self._pending if (kept := _without(run, row)) is not None]

    def write(self, row: int, start: int, slots: NDArray[np.int32]) -> None:
        """Row `row` holds `slots` int32 [n] from position `start` on."""
        if len(slots) == 0:
            return
        self.table[row, start : start + len(slots)] = slots
        sent = slots[: max(0, self.max_context - start)].copy()
        if len(sent):
            one = np.array([row, start, len(sent)], dtype=np.int32)
            self._pending.append((one[:1], one[1:2], one[2:], sent))

    def write_runs(
        self, rows: NDArray[np.int32], starts: NDArray[np.int32], lengths: NDArray[np.int32], slots: NDArray[np.int32]
    ) -> None:
        """Many rows at once: run i puts `lengths[i]` slots into `rows[i]` from `starts[i]`; int32, `slots` one run behind
        the other."""
        if len(slots) == len(rows):
            self.table[rows, starts] = slots
            inside = starts < self.max_context
            run = (rows, starts, lengths, slots)
            self._pending.append(run if bool(inside.all()) else _pick(run, inside))
            return
        ends = np.cumsum(lengths)
        positions = np.arange(len(slots), dtype=np.int32) + np.repeat(starts - (ends - lengths), lengths)
        self.table[np.repeat(rows, lengths), positions] = slots
        inside = positions < self.max_context
        if not bool(inside.all()):
            lengths = np.minimum(lengths, np.maximum(self.max_context - starts, 0)).astype(np.int32)
            slots = slots[inside]
        self._pending.append((rows, starts, lengths, slots))

    def take_writes(self) -> RowWrites:
        """The changes since the last call, in order; they are the worker's to apply now."""
        pending, self._pending = self._pending, []
        if not pending:
            return RowWrites()
        if len(pending) == 1:
            rows, starts, lengths, slots = pending[0]
        else:
            rows, starts, lengths, slots = (np.concatenate([run[i] for run in pending]) for i in range(4))
        return RowWrites(rows=rows, starts=starts, lengths=lengths, slots=slots)


def _pick(run: _Run, keep: NDArray[np.bool_]) -> _Run:
    rows, starts, lengths, slots = run
    return rows[keep], starts[keep], lengths[keep], slots[np.repeat(keep, lengths)]


def _without(run: _Run, row: int) -> _Run | None:
    keep = run[0] != row
    if bool(keep.all()):
        return run
    return _pick(run, keep) if bool(keep.any()) else None
