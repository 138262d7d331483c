"""What the cache would serve for the waiting requests: the hints that policies order by. A hint is never a promise: who is
admitted is looked up again.

Looking up costs a little for each request, so that a step looks up a bounded number: the others keep an older hint until it
is their turn.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import PrefixForest
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.queue import WaitingQueue

KEYS = 128
TOKENS = 2**18
"""Most requests, and most tokens of theirs, that one step looks up, one request at least."""


Saved: TypeAlias = tuple[frozenset[str], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]
"""Needs, head, and the two columns of the waiting table."""


class PrefixHints:
    """needs: the policy's: "cached_tokens" fills that column, "forest" lets `forest` look them up."""

    def __init__(self, needs: frozenset[str], waiting: WaitingQueue, memory: KVMemory) -> None:
        self._needs = needs
        self._waiting = waiting
        self._memory = memory
        self._head = np.empty(0, dtype=np.int64)
        self._forest: PrefixForest | None = None
        self._forest_changes = -1
        self._forest_uids = np.empty(0, dtype=np.int64)
        self._forest_rows = 0

    def need(self, needs: frozenset[str]) -> None:
        """From now on these, another policy's; what is not needed any more is as if it had never been looked up."""
        self._needs = needs
        if not self._hints:
            self._waiting.table["cached_tokens"][:] = 0
            self._waiting.table["hinted"][:] = 0
            self._head = np.empty(0, dtype=np.int64)
        if not self.wants_forest:
            self._forest, self._forest_changes = None, -1

    def saved(self) -> Saved:
        """For `restore`, if nothing is admitted or comes in between."""
        table = self._waiting.table
        return self._needs, self._head, table["cached_tokens"].copy(), table["hinted"].copy()

    def restore(self, saved: Saved) -> None:
        """As it was before `need`."""
        table = self._waiting.table
        self._needs, self._head, table["cached_tokens"][:], table["hinted"][:] = saved

    @property
    def wants_forest(self) -> bool:
        return "forest" in self._needs

    @property
    def _hints(self) -> bool:
        return "cached_tokens" in self._needs

    def ordered(self, order: NDArray[np.intp]) -> None:
        """The order of this step: who stands at its head is looked up sooner in the next one."""
        if self._hints:
            self._head = self._waiting.table["uid"][order[: KEYS // 4]]

    def renew(self) -> None:
        """`cached_tokens` of waiting requests, when the policy needs it, after the cache changed or requests came.

        In one step: new requests up to half of `KEYS`, then the head of the last order up to a quarter, then those whose hint
        is oldest. So a hint is at most 4 * len(waiting) / KEYS steps older than the cache, as far as `TOKENS` does not bind.
        """
        if not self._hints:
            return
        table = self._waiting.table
        version = self._memory.changes + 1  # 0: never looked up
        stale = np.flatnonzero(table["hinted"] != version)
        if not len(stale):
            return
        rows = self._within_tokens(stale if len(stale) <= KEYS else self._first(stale))
        keys = [request.known_key for request in table["request"][rows].tolist()]
        table["cached_tokens"][rows] = self._memory.peek(keys)
        table["hinted"][rows] = version

    def forest(self) -> PrefixForest | None:
        """`SchedulerView.forest` over the waiting requests that came first, at most `KEYS`; of the others nothing is known in it.
        Looked up again when the cache or those requests changed, or it failed."""
        table = self._waiting.table
        rows = self._within_tokens(np.arange(min(len(table), KEYS)))
        uids = table["uid"][rows]
        changed = self._memory.changes != self._forest_changes or not np.array_equal(uids, self._forest_uids)
        if changed or self._forest is None:
            found = self._memory.forest([request.known_key for request in table["request"][rows].tolist()])
            self._forest_changes = self._memory.changes
            self._forest_uids = uids.copy()
            self._forest = found
            self._forest_rows = -1
        if self._forest is not None and self._forest_rows != len(table):
            self._forest = _widened(self._forest, len(rows), len(table))
            self._forest_rows = len(table)
        return self._forest

    def _first(self, stale: NDArray[np.intp]) -> NDArray[np.intp]:
        """`KEYS` of more stale rows."""
        table = self._waiting.table
        hinted = table["hinted"][stale]
        new = stale[hinted == 0][: KEYS // 2]
        head = np.searchsorted(table["uid"], self._head)
        head = head[head < len(table)]
        taken = np.zeros(len(table), dtype=np.bool_)
        taken[new] = True
        taken[head] = True
        taken &= table["hinted"] != self._memory.changes + 1
        rest = stale[~taken[stale]]
        oldest = rest[np.argsort(table["hinted"][rest], kind="stable")]
        return np.concatenate([np.flatnonzero(taken), oldest])[:KEYS]

    def _within_tokens(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """The first of these rows that have no more than `TOKENS` tokens together, one at least."""
        table = self._waiting.table
        known = (table["prompt_tokens"][rows] + table["output_tokens"][rows]).astype(np.int64)
        return rows[: max(1, int(np.searchsorted(np.cumsum(known), TOKENS, "right")))]


def _widened(forest: PrefixForest, known: int, count: int) -> PrefixForest:
    """The forest over `count` keys, of which it knows the first ones only."""
    node = np.full(count, -1, dtype=np.intp)
    matched = np.zeros(count, dtype=np.int32)
    node[:known], matched[:known] = forest.node[:known], forest.matched[:known]
    node.flags.writeable = matched.flags.writeable = False
    return PrefixForest(parent=forest.parent, weight=forest.weight, node=node, matched=matched)
