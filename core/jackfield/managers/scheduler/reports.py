"""Tells the policy and the observers what was scheduled and what happened. Records are built only if somebody listens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import BatchScheduled, RequestLife, StepDecision, StepRecord
from jackfield.managers.scheduler.batch import ScheduleBatch, StepInFlight
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.policy_guard import PolicyGuard
from jackfield.managers.scheduler.release import Ended
from jackfield.managers.scheduler.table import ColumnTable
from jackfield.managers.scheduler.watchers import Observers

_Array = TypeVar("_Array", bound=NDArray[Any])


def _read_only(array: _Array) -> _Array:
    """A view for plugins: these are the scheduler's own arrays, from which it goes on."""
    view = array.view()
    view.flags.writeable = False
    return view


class StepReports:
    """tables       the waiting and the running requests
    take_lives   gives the lives of the requests that ended since it was called last
    """

    def __init__(
        self,
        *,
        policy: PolicyGuard,
        observers: Observers,
        take_lives: Callable[[], list[RequestLife]],
        memory: KVMemory,
        tables: Sequence[ColumnTable],
    ) -> None:
        self._policy = policy
        self._observers = observers
        self._take_lives = take_lives
        self._memory = memory
        self._tables = tables
        self._muted = False
        # As the cache was told at its start. It goes on even when the listeners are quarantined.
        self._cache_tells = observers.listens("jackfield_cache_events")

    def mute(self, muted: bool) -> None:
        """During the warm-up no observer hears of a step, nor of what it did to the cache."""
        self.between_steps()  # what happened before belongs to the time before
        self._muted = muted

    def _listens(self, hook_name: str) -> bool:
        return not self._muted and self._observers.listens(hook_name)

    def scheduled(
        self, batch: ScheduleBatch, computed: NDArray[np.int32], *, at: float, waiting: int, running: int
    ) -> None:
        """Before the launch."""
        if batch.retracted and self._listens("jackfield_requests_retracted"):
            self._observers.notify("jackfield_requests_retracted", uids=batch.retracted)
        if not self._listens("jackfield_batch_scheduled"):
            return
        record = BatchScheduled(
            step=batch.step,
            at=at,
            uids=_read_only(batch.uids),
            new_tokens=_read_only(batch.new_tokens),
            computed=_read_only(computed),
            waiting=waiting,
            running=running,
            free_slots=self._memory.free_slots(),
        )
        self._observers.notify("jackfield_batch_scheduled", batch=record)

    def committed(self, step: StepInFlight, ended: Ended, at: float) -> None:
        """After the commit."""
        listens = self._listens("jackfield_batch_committed")
        if self._policy.observes or listens:
            record = StepRecord(
                step=step.batch.step,
                started=step.started,
                ended=at,
                uids=_read_only(step.batch.uids),
                tokens=_read_only(step.batch.new_tokens),
                admitted=step.batch.admitted,
                finished=tuple(ended.finished),
                retracted=step.batch.retracted,
                aborted=tuple(ended.aborted),
                prefills=step.batch.prefills,
                tenants=_read_only(np.array([request.tenant for request in step.requests.tolist()], dtype=np.int32)),
                open_tenants=_read_only(np.unique(np.concatenate([table["tenant"] for table in self._tables]))),
            )
            if self._policy.observes:
                self._policy.observe(record)
            if listens:
                self._observers.notify("jackfield_batch_committed", record=record)
        self.between_steps()

    def decided(self, decisions: Sequence[StepDecision]) -> None:
        """What was decided for a step that is committed now, and in rounds before it."""
        for decision in decisions:
            if self._listens("jackfield_step_decided"):
                self._observers.notify("jackfield_step_decided", decision=decision)

    def between_steps(self) -> None:
        """Pass on what happens without a step as well: requests that ended, changes of the cache."""
        if (lives := self._take_lives()) and self._listens("jackfield_requests_explained"):
            self._observers.notify("jackfield_requests_explained", lives=tuple(lives))
        self._cache_changed()

    def _cache_changed(self) -> None:
        """Pass on what happened to the cache since the last call. What nobody may hear is taken too, or the cache would keep
        it for ever."""
        if not self._cache_tells:
            return
        events = self._memory.take_events()
        if events and self._listens("jackfield_cache_events"):
            self._observers.notify("jackfield_cache_events", events=tuple(events))
