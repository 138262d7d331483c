"""What the cache would serve for the waiting requests: the hints that policies order by. A hint is never a promise: who is
admitted is looked up again."""

from __future__ import annotations

import numpy as np

from jackfield.hookspecs import PrefixForest
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.queue import WaitingQueue


class PrefixHints:
    """needs: the policy's: "cached_tokens" fills that column, "forest" lets `forest` look them up."""

    def __init__(self, needs: frozenset[str], waiting: WaitingQueue, memory: KVMemory) -> None:
        self._hints = "cached_tokens" in needs
        self.wants_forest = "forest" in needs
        self._waiting = waiting
        self._memory = memory
        self._hinted_changes = -1
        self._hinted_uid = 0
        self._forest: PrefixForest | None = None
        self._forest_changes = -1
        self._forest_uids = np.empty(0, dtype=np.int64)

    def forest(self) -> PrefixForest | None:
        """`SchedulerView.forest`, looked up again when the cache or the waiting requests changed, or it failed."""
        uids = self._waiting.table["uid"]
        changed = self._memory.changes != self._forest_changes or not np.array_equal(uids, self._forest_uids)
        if changed or self._forest is None:
            keys = [request.known_key for request in self._waiting.table["request"].tolist()]
            self._forest = self._memory.forest(keys)
            self._forest_changes = self._memory.changes
            self._forest_uids = uids.copy()
        return self._forest

    def renew(self) -> None:
        """`cached_tokens` of the waiting requests, when the policy needs it: of all after the cache changed, else of the
        new ones."""
        table = self._waiting.table
        if not self._hints:
            return
        uids = table["uid"]
        stale = (
            0 if self._memory.changes != self._hinted_changes else int(np.searchsorted(uids, self._hinted_uid, "right"))
        )
        if stale < len(table):
            keys = [request.known_key for request in table["request"][stale:].tolist()]
            table["cached_tokens"][stale:] = self._memory.peek(keys)
        self._hinted_changes = self._memory.changes
        self._hinted_uid = int(uids[-1])
