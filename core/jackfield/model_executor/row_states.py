"""What the worker remembers of each row on the host: is it open, how far has it slots, is its newest token sampled here.

It turns a scheduler's slip (a row used after it was closed, a token without a slot, a relay of a token that does not
exist) into an error before the device reads garbage.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import ModelWorkerBatch
from jackfield.model_executor.batch_check import InvalidBatch


class RowStates:
    """Columns over the rows of the request-to-token table."""

    def __init__(self, max_rows: int) -> None:
        self._open = np.zeros(max_rows, dtype=np.bool_)
        self._has_newest = np.zeros(max_rows, dtype=np.bool_)
        self._owner = np.zeros(max_rows, dtype=np.int64)  # uid of the request that has the row
        self._written = np.zeros(max_rows, dtype=np.int64)  # tokens of the row that have slots in the table
        self._next_written = self._written  # the same behind the batch that was checked last

    def check(self, batch: ModelWorkerBatch) -> None:
        """Raises InvalidBatch; changes nothing that `apply` does not take over."""
        after = self._open
        if batch.closed.size or batch.opened:
            after = self._opened_after(batch)
        if np.count_nonzero(is_open := after[batch.rows]) < batch.rows.size:
            row = batch.rows[~is_open][0]
            raise InvalidBatch(f"step {batch.step}: row {row} is in the batch, but is not open")
        self._next_written = self._written_after(batch)
        ends, written = batch.computed + batch.new_tokens, self._next_written[batch.rows]
        if np.count_nonzero(short := ends > written):
            first = int(short.argmax())
            raise InvalidBatch(
                f"step {batch.step}: row {batch.rows[first]} goes on to {ends[first]} tokens, but only {written[first]} of "
                "them have a slot"
            )
        if np.count_nonzero(batch.relay):
            relayed = batch.rows[batch.relay]
            newly = np.isin(relayed, [row.row for row in batch.opened])
            unknown = relayed[newly | ~self._has_newest[relayed]]
            if unknown.size:
                raise InvalidBatch(
                    f"step {batch.step}: row {unknown[0]} relays its newest token, but none was sampled for it yet"
                )

    def _opened_after(self, batch: ModelWorkerBatch) -> NDArray[np.bool_]:
        not_open = batch.closed[~self._open[batch.closed]]
        if not_open.size:
            raise InvalidBatch(f"step {batch.step}: row {not_open[0]} is closed, but was not open")
        after = self._open.copy()
        after[batch.closed] = False
        for row in batch.opened:
            if after[row.row]:
                raise InvalidBatch(f"step {batch.step}: row {row.row} is opened for {row.uid}, but is open already")
            after[row.row] = True
        return after

    def apply(self, batch: ModelWorkerBatch) -> None:
        """Take over the changes of the batch that was checked last."""
        self._written = self._next_written
        if batch.closed.size:
            self._open[batch.closed] = False
        for row in batch.opened:
            self._open[row.row] = True
            self._has_newest[row.row] = False
            self._owner[row.row] = row.uid
        self._has_newest[batch.rows[batch.sample]] = False  # until this step is sampled

    def _written_after(self, batch: ModelWorkerBatch) -> NDArray[np.int64]:
        written = self._written.copy()
        if batch.closed.size or batch.opened:
            written[batch.closed] = 0
            written[[row.row for row in batch.opened]] = 0
        if batch.writes.rows.size:
            np.maximum.at(written, batch.writes.rows, batch.writes.starts.astype(np.int64) + batch.writes.lengths)
        return written

    def owners(self, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """uid of each row's request."""
        return self._owner[rows]

    def live(self, rows: NDArray[np.int32], owners: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The rows that still belong to these requests."""
        still: NDArray[np.bool_] = self._open[rows] & (self._owner[rows] == owners)
        return still

    def sampled(self, rows: NDArray[np.int32], owners: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The rows have a newest token now. True for those that still belong to the same request: a row may have been
        closed, and given to another request, by a batch that was launched in between."""
        still = self.live(rows, owners)
        self._has_newest[rows[still]] = True
        return still
