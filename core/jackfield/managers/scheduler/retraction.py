"""Takes running requests back into the queue when the memory that others need is not there. A retracted request keeps its
tokens; what its KV held is offered to the cache, and it is computed again where the cache has lost it.

Only while no step is in flight: then no token is thrown away, and no late result can meet a request that was readmitted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import Amounts, SchedulerView
from jackfield.managers.scheduler.decisions import DecisionLog
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.new_token_ratio import NewTokenRatio
from jackfield.managers.scheduler.policy_guard import PolicyGuard
from jackfield.managers.scheduler.queue import WaitingQueue
from jackfield.managers.scheduler.release import Releaser
from jackfield.managers.scheduler.running import RunningTable


class Retraction:
    """total: retractions so far."""

    def __init__(
        self,
        *,
        waiting: WaitingQueue,
        running: RunningTable,
        memory: KVMemory,
        policy: PolicyGuard,
        releaser: Releaser,
        ratio: NewTokenRatio,
        decisions: DecisionLog,
    ) -> None:
        self.total = 0
        self._waiting = waiting
        self._running = running
        self._memory = memory
        self._policy = policy
        self._releaser = releaser
        self._ratio = ratio
        self._decisions = decisions
        self._uids: list[int] = []

    def take(self) -> tuple[int, ...]:
        """uids retracted since the last call."""
        uids, self._uids = tuple(self._uids), []
        return uids

    def make_room(self, rows: NDArray[np.intp], ends: NDArray[np.int32], view: SchedulerView) -> None:
        """Retract until those of `rows` that still run can grow to `ends` tokens [n], or one request alone is left.

        The policy's victims go first, then the newest admitted; who holds nothing outside the cache comes last, because its
        release may free nothing.
        """
        running, memory = self._running, self._memory
        gone = np.zeros(len(running), dtype=np.bool_)
        victims: list[int] = []
        for at in self._candidates(memory.lacking(running, rows, ends), view):
            stay = ~gone[rows]
            if not memory.lacking(running, rows[stay], ends[stay]) or len(victims) == len(running) - 1:
                break
            self._releaser.give_back(running["request"][at], at)
            gone[at] = True
            victims.append(at)
        self._queue(np.array(victims, dtype=np.intp), 0, view.now)
        self._ratio.retracted(
            running=len(running),
            output_tokens=int(running["output_tokens"].sum()),
            max_new_tokens=int(running["max_new_tokens"].sum()),
        )

    def retract(self, rows: NDArray[np.intp], for_uid: int, now: float) -> None:
        """Take these running requests back into the queue, for the waiting request `for_uid`."""
        for at in rows.tolist():
            self._releaser.give_back(self._running["request"][at], at)
        self._queue(rows, for_uid, now)

    def _candidates(self, lacking: int, view: SchedulerView) -> list[int]:
        first = self._policy.victims(self._running.view, Amounts(slots=lacking), None, view)
        newest = np.arange(len(self._running))[::-1]
        newest = newest[np.argsort(self._running["held_tokens"][newest] == 0, kind="stable")]
        order: list[int] = np.concatenate([first, newest[~np.isin(newest, first)]]).tolist()
        return order

    def _queue(self, rows: NDArray[np.intp], for_uid: int, now: float) -> None:
        """Their memory is given back; now they wait."""
        if not len(rows):
            return
        columns = self._running.take(rows)
        self._running.reindex()
        columns["retractions"] += 1
        for request in columns["request"].tolist():
            request.wait(now)
            self._decisions.retracted(request, for_uid, now)
        self._waiting.put_back(columns)
        self._memory.changes += 1  # the hints of those who are back are looked up
        uids = columns["uid"].tolist()
        self._uids += uids
        self.total += len(uids)
