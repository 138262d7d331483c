"""Whether a waiting request that does not fit may take the memory or the place of running ones, and of whom. The policy
proposes; these rules are the core's: a victim's own priority is strictly lower, so that equals never preempt and two
requests can never preempt each other in turn; who was passed over too often is left alone; and all that is needed must come
free, or nobody is touched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import Amounts, RequestTable, SchedulerView
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.new_token_ratio import NewTokenRatio
from jackfield.managers.scheduler.policy_guard import PolicyGuard
from jackfield.managers.scheduler.running import RunningTable
from jackfield.mem_cache.accounting import round_up

_NOBODY: NDArray[np.intp] = np.empty(0, dtype=np.intp)


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """The first waiting request that does not fit, and nobody was admitted before it.

    row      its waiting row
    lacking  slots that are missing for it beside what is promised; 0 or less: it lacks a place only
    window_lacking   the same of the window pool
    cached   int32 [n]: cached slots that it would use, which a release therefore does not free for it
    """

    uid: int
    row: int
    priority: int
    lacking: int
    cached: NDArray[np.int32]
    window_lacking: int = 0


class Preemption:
    def __init__(
        self,
        *,
        max_skips: int,
        waiting: RequestTable,
        running: RunningTable,
        memory: KVMemory,
        policy: PolicyGuard,
        ratio: NewTokenRatio,
    ) -> None:
        self._max_skips = max_skips
        self._waiting = waiting
        self._running = running
        self._memory = memory
        self._policy = policy
        self._ratio = ratio

    def victims(self, blocked: Blocked, view: SchedulerView) -> NDArray[np.intp]:
        """Running rows whose retraction lets the request in, no more than needed; none if it must wait. Changes nothing."""
        running, memory = self._running, self._memory
        short = max(0, blocked.lacking, blocked.window_lacking)
        need = Amounts(slots=round_up(short, memory.page_size), window=max(0, blocked.window_lacking))
        if not (running["priority"] < blocked.priority).any():
            return _NOBODY
        rows = self._policy.victims(running.view, need, blocked.row, replace(view, waiting=self._waiting))
        rows = rows[(running["priority"][rows] < blocked.priority) & (running["skips"][rows] < self._max_skips)]
        promises = running.promises(self._ratio.value, memory.page_size)
        lacking = blocked.lacking
        if int((promises + running["allocated"])[rows].sum()) < lacking:
            return _NOBODY  # not even if they shared nothing with anybody
        users = np.zeros(memory.total + memory.page_size, dtype=np.int32)
        users[blocked.cached] += 1
        for row, allocated in zip(running["row"].tolist(), running["allocated"].tolist(), strict=True):
            users[memory.rows.table[row, :allocated]] += 1
        window_lacking = blocked.window_lacking
        gives = None
        if (window := memory.window) is not None:
            gives = window.held(running) + window.promises(running, self._ratio.value)
        for count, at in enumerate(rows.tolist(), start=1):
            if gives is not None:
                window_lacking -= int(gives[at])
            slots = memory.rows.table[running["row"][at], : running["allocated"][at]]
            users[slots] -= 1
            lacking -= int(promises[at]) + int(np.count_nonzero(users[slots] == 0))
            if lacking <= 0 and window_lacking <= 0:
                return rows[:count]
        return _NOBODY
