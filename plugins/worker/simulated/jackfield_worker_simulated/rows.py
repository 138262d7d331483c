"""The open rows: which request each holds, its tokens, and how far it was computed. It knows nothing of slots.

The big arrays are [rows, context] like a request-to-token table; memory that no row touches is never made real.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import ModelWorkerBatch, RowOpen, WorkerLimits
from jackfield_worker_simulated.errors import SimulationError
from jackfield_worker_simulated.hashing import PrefixHasher, mix
from jackfield_worker_simulated.ragged import flat_runs

NOT_STARTED = -1
NOBODY = -1


class OpenRows:
    """uid       NOBODY where the row is closed
    known     tokens that exist: the history and what was sampled since
    history   tokens that existed when the row opened
    computed  tokens whose KV is written; NOT_STARTED before the first batch
    prefix    prefix[row, k]: hash of the row's first k tokens
    noise     what the request's seed adds to a draw; 0 for greedy rows
    """

    def __init__(self, limits: WorkerLimits) -> None:
        rows, context = limits.max_rows, limits.max_context
        self.hasher = PrefixHasher(context + 1)
        self.uid = np.full(rows, NOBODY, dtype=np.int64)
        self.known = np.zeros(rows, dtype=np.int32)
        self.history = np.zeros(rows, dtype=np.int32)
        self.computed = np.full(rows, NOT_STARTED, dtype=np.int32)
        self.noise = np.zeros(rows, dtype=np.uint64)
        # One place more than the context: the token sampled from the last position is known and never computed.
        self.tokens = np.zeros((rows, context + 1), dtype=np.int32)
        self.prefix = np.zeros((rows, context + 2), dtype=np.uint64)

    def open_count(self) -> int:
        return int(np.count_nonzero(self.uid != NOBODY))

    def closed(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """Which of these rows are not open."""
        closed: NDArray[np.bool_] = self.uid[rows] == NOBODY
        return closed

    def close(self, rows: NDArray[np.int32]) -> None:
        shut = rows[self.closed(rows)]
        if len(shut):
            raise SimulationError(f"row {shut[0]} is closed, and it is not open")
        self.uid[rows] = NOBODY
        self.computed[rows] = NOT_STARTED

    def open(self, opened: RowOpen) -> None:
        row = opened.row
        if self.uid[row] != NOBODY:
            raise SimulationError(f"row {row} is opened for uid {opened.uid}, and uid {self.uid[row]} has it still")
        if opened.uid < 0:
            raise SimulationError(f"row {row} is opened for uid {opened.uid}; request numbers are not negative")
        other = np.flatnonzero(self.uid == opened.uid)
        if len(other):
            raise SimulationError(f"row {row} is opened for uid {opened.uid}, which has row {other[0]} already")
        length = len(opened.history)
        self.uid[row] = opened.uid
        self.known[row] = self.history[row] = length
        self.tokens[row, :length] = opened.history
        self.prefix[row, : length + 1] = self.hasher.prefixes(self.hasher.empty(opened.adapter), opened.history)
        self.noise[row] = mix(np.array([opened.seed], dtype=np.uint64))[0] if opened.temperature > 0 else 0

    def start(self, batch: ModelWorkerBatch) -> NDArray[np.int32]:
        """Tokens computed before this batch, int32 [n]: the worker's own count, for which the batch's must stand."""
        rows, claimed = batch.rows, batch.computed
        own = self.computed[rows]
        first = own == NOT_STARTED
        own = np.where(first, claimed, own)
        if not batch.exact and first.any():
            self._refuse(batch, first, "begins with a count of computed tokens that is not exact")
        wrong = own != claimed if batch.exact else own > claimed
        if wrong.any():
            self._refuse(batch, wrong, "was told to go on from {computed} computed tokens and has {own}")
        return own

    def check_tokens(self, batch: ModelWorkerBatch, start: NDArray[np.int32]) -> None:
        """The batch's tokens are the rows' own, relayed ones were sampled, and only the newest token is sampled from."""
        rows = batch.rows
        end = start + batch.new_tokens
        beyond = end > self.known[rows]
        if beyond.any():
            self._refuse(
                batch, beyond, "advances beyond the {known} tokens that it has; nothing was sampled for it yet"
            )
        unsampled = batch.relay & ((end != self.known[rows]) | (self.known[rows] == self.history[rows]))
        if unsampled.any():
            self._refuse(batch, unsampled, "relays a token, and the last one of the step was not sampled here")
        early = batch.sample & (end != self.known[rows])
        if early.any():
            self._refuse(batch, early, "samples before all of its {known} tokens are computed")
        row, position = flat_runs(rows, start, batch.new_tokens)
        differ = self.tokens[row, position] != batch.token_ids
        differ[(np.cumsum(batch.new_tokens) - 1)[batch.relay]] = False
        if differ.any():
            i = int(differ.argmax())
            raise SimulationError(
                f"row {row[i]}, uid {self.uid[row[i]]}: token {position[i]} is {self.tokens[row[i], position[i]]}, "
                f"the batch says {batch.token_ids[i]}"
            )

    def append(self, rows: NDArray[np.int32], tokens: NDArray[np.int32]) -> None:
        """One sampled token for each of these open rows."""
        at = self.known[rows]
        self.tokens[rows, at] = tokens
        self.prefix[rows, at + 1] = self.hasher.extend(self.prefix[rows, at], tokens)
        self.known[rows] = at + 1

    def _refuse(self, batch: ModelWorkerBatch, bad: NDArray[np.bool_], text: str) -> None:
        i = int(bad.argmax())
        row = int(batch.rows[i])
        facts = {"computed": batch.computed[i], "own": self.computed[row], "known": self.known[row]}
        raise SimulationError(f"step {batch.step}: row {row}, uid {self.uid[row]} {text.format(**facts)}")
