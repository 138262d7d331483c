"""What each KV slot holds, as the hash of the token prefix that was computed into it, and which open rows point at it.

The simulated KV cache: a scheduler or cache that mixes up slots is found here in the step in which it happens. It knows
rows and prefix hashes, not requests.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import RowWrites, WorkerLimits
from jackfield_worker_simulated.errors import SimulationError
from jackfield_worker_simulated.ragged import flat_runs
from jackfield_worker_simulated.rows import OpenRows


class KVLedger:
    """table    int32 [rows, context], 0 where nothing was written; filled: end of what was written, per row
    content  uint64 [slots], hash of the prefix that ends with the slot's token; 0 for none
    users    int32 [slots], places in open rows' tables that name the slot
    """

    def __init__(self, limits: WorkerLimits) -> None:
        self._first = limits.page_size
        self._end = limits.page_size + limits.total_slots
        self._page = limits.page_size
        self._table = np.zeros((limits.max_rows, limits.max_context), dtype=np.int32)
        self._filled = np.zeros(limits.max_rows, dtype=np.int32)
        self._content = np.zeros(self._end, dtype=np.uint64)
        self._users = np.zeros(self._end, dtype=np.int32)

    def close(self, rows: NDArray[np.int32]) -> None:
        """These rows point at nothing any more."""
        for row in rows.tolist():
            held = self._table[row, : self._filled[row]]
            np.subtract.at(self._users, held[held > 0], 1)
            held[:] = 0
            self._filled[row] = 0

    def write(self, writes: RowWrites, rows: OpenRows) -> None:
        """Apply changes of the tables. Where a row's KV is computed already, its new slot must hold the same prefix."""
        count = len(writes.rows)
        if len(np.unique(writes.rows)) == count:
            self._write(writes.rows, writes.starts, writes.lengths, writes.slots, rows)
            return
        ends = np.cumsum(writes.lengths)  # several runs in one row may overlap: the later one counts
        for i in range(count):
            slots = writes.slots[ends[i] - writes.lengths[i] : ends[i]]
            self._write(writes.rows[i : i + 1], writes.starts[i : i + 1], writes.lengths[i : i + 1], slots, rows)

    def check_prefix(self, run_rows: NDArray[np.int32], lengths: NDArray[np.int32], rows: OpenRows) -> None:
        """The first `lengths` slots of these rows hold the rows' own tokens, in order and in whole pages."""
        row, position = flat_runs(run_rows, np.zeros_like(lengths), lengths)
        slots = self._table[row, position]
        self._refuse_unset(row, position, slots)
        self._check_pages(row, position, slots)
        self._check_content(row, position, slots, rows)

    def compute(
        self, run_rows: NDArray[np.int32], starts: NDArray[np.int32], lengths: NDArray[np.int32], rows: OpenRows
    ) -> None:
        """KV of these new tokens is written. Nobody else may point at the slots."""
        row, position = flat_runs(run_rows, starts, lengths)
        slots = self._table[row, position]
        self._refuse_unset(row, position, slots)
        self._check_pages(row, position, slots)
        shared = self._users[slots] != 1
        if shared.any():
            i = int(shared.argmax())
            raise SimulationError(
                f"row {row[i]}, uid {rows.uid[row[i]]} writes token {position[i]} into slot {slots[i]}, "
                f"which the open rows use {self._users[slots[i]]} times: {self._who(int(slots[i]))}"
            )
        self._content[slots] = rows.prefix[row, position + 1]

    def slots_of(
        self, run_rows: NDArray[np.int32], starts: NDArray[np.int32], lengths: NDArray[np.int32]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int32]]:
        """Row, position and slot of the tokens of these runs."""
        row, position = flat_runs(run_rows, starts, lengths)
        return row, position, self._table[row, position]

    def content_of(self, slots: NDArray[np.int32]) -> NDArray[np.uint64]:
        """What these slots hold, a copy."""
        self._refuse_outside(slots)
        return self._content[slots]

    def blank(self, slots: NDArray[np.int32]) -> None:
        """A copy into these slots begins: they hold nothing until it ends. Rows that have ended may still point at them,
        because the worker is told of ends with the next launch; a row that goes on finds that its prefix is gone."""
        self._refuse_outside(slots)
        self._content[slots] = 0

    def fill(self, slots: NDArray[np.int32], content: NDArray[np.uint64]) -> None:
        """The copy has ended."""
        if self._content[slots].any():
            raise SimulationError("a slot was written before the copy into it had ended")
        self._content[slots] = content

    def reset(self) -> None:
        """Forget what the slots hold. Only while no row is open."""
        self._content[:] = 0

    def _refuse_outside(self, slots: NDArray[np.int32]) -> None:
        if not (self._first <= int(slots.min()) and int(slots.max()) < self._end):
            raise SimulationError(f"a copy names slots outside {self._first} .. {self._end - 1}")

    def _write(
        self,
        run_rows: NDArray[np.int32],
        starts: NDArray[np.int32],
        lengths: NDArray[np.int32],
        slots: NDArray[np.int32],
        rows: OpenRows,
    ) -> None:
        row, position = flat_runs(run_rows, starts, lengths)
        closed = rows.closed(row)
        if closed.any():
            raise SimulationError(f"slots are written into row {row[closed.argmax()]}, which is not open")
        outside = (slots < self._first) | (slots >= self._end)
        if outside.any():
            i = int(outside.argmax())
            raise SimulationError(
                f"row {row[i]}, uid {rows.uid[row[i]]}: slot {slots[i]} at position {position[i]} is outside "
                f"{self._first} .. {self._end - 1}"
            )
        old = self._table[row, position]
        np.subtract.at(self._users, old[old > 0], 1)
        np.add.at(self._users, slots, 1)
        self._table[row, position] = slots
        np.maximum.at(self._filled, run_rows, starts + lengths)
        again = position < rows.computed[row]
        if again.any():
            self._check_content(row[again], position[again], slots[again], rows)

    def _check_content(
        self, row: NDArray[np.intp], position: NDArray[np.intp], slots: NDArray[np.int32], rows: OpenRows
    ) -> None:
        wrong = self._content[slots] != rows.prefix[row, position + 1]
        if wrong.any():
            i = int(wrong.argmax())
            holds = "another prefix" if self._content[slots[i]] else "nothing"
            raise SimulationError(
                f"row {row[i]}, uid {rows.uid[row[i]]} reads token {position[i]} from slot {slots[i]}, which holds {holds}"
            )

    def _check_pages(self, row: NDArray[np.intp], position: NDArray[np.intp], slots: NDArray[np.int32]) -> None:
        if self._page == 1:
            return
        inside = position % self._page
        wrong = (slots % self._page != inside) | (self._table[row, position - inside] + inside != slots)
        if wrong.any():
            i = int(wrong.argmax())
            raise SimulationError(
                f"row {row[i]}: token {position[i]} has slot {slots[i]}, which is not its place in a page of {self._page}"
            )

    def _refuse_unset(self, row: NDArray[np.intp], position: NDArray[np.intp], slots: NDArray[np.int32]) -> None:
        unset = slots == 0
        if unset.any():
            i = int(unset.argmax())
            raise SimulationError(f"row {row[i]} has no slot at position {position[i]}")

    def _who(self, slot: int) -> str:
        rows, positions = np.nonzero(self._table == slot)
        return ", ".join(f"row {row} position {at}" for row, at in zip(rows.tolist(), positions.tolist(), strict=True))
