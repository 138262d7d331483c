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

Record = TypeVar("Record")


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
        tables: tuple[ColumnTable, ColumnTable],
    ) -> None:
        self._policy = policy
        self._observers = observers
        self._take_lives = take_lives
        self._memory = memory
        self._tables = tables
        self._muted = False
        self._one_tenant: NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._one_of: NDArray[np.int32] | None = None
        self._open_tenants: tuple[tuple[int, int], NDArray[np.int32]] = ((-1, -1), np.empty(0, dtype=np.int32))
        # As the cache was told at its start. It goes on even when the listeners are quarantined.
        self._cache_tells = observers.listens("jackfield_cache_events")

    def mute(self, muted: bool) -> None:
        """During the warm-up no observer hears of a step, nor of what it did to the cache."""
        self.between_steps()  # what happened before belongs to the time before
        self._muted = muted

    def tenants_of(self, running: ColumnTable, at: NDArray[np.intp]) -> NDArray[np.int32] | None:
        """Of the requests at these rows [n], for the record of their step, not writable; None if nobody hears of it."""
        if not (self._policy.observes or self._listens("jackfield_batch_committed")):
            return None
        tenants = self._all_open_tenants()
        if len(tenants) > 1:
            several = running["tenant"][at]
            several.setflags(write=False)
            return several
        if tenants is not self._one_of or len(at) != len(self._one_tenant):
            self._one_of = tenants
            self._one_tenant = np.full(len(at), tenants[0] if len(tenants) else 0, dtype=np.int32)
            self._one_tenant.setflags(write=False)
        return self._one_tenant

    def _listens(self, hook_name: str) -> bool:
        return not self._muted and self._observers.listens(hook_name)

    def scheduled(
        self, batch: ScheduleBatch, computed: NDArray[np.int32], *, at: float, waiting: int, running: int
    ) -> None:
        """Before the launch. computed: nobody writes it from here on."""
        if batch.retracted and self._listens("jackfield_requests_retracted"):
            self._observers.notify("jackfield_requests_retracted", uids=batch.retracted)
        if not self._listens("jackfield_batch_scheduled"):
            return
        uids, new_tokens = batch.shown()
        computed.setflags(write=False)
        record = _record(
            BatchScheduled,
            {
                "step": batch.step,
                "at": at,
                "uids": uids,
                "new_tokens": new_tokens,
                "computed": computed,
                "waiting": waiting,
                "running": running,
                "free_slots": self._memory.free_slots(),
            },
        )
        self._observers.notify("jackfield_batch_scheduled", batch=record)

    def committed(self, step: StepInFlight, ended: Ended, at: float) -> None:
        """After the commit."""
        listens = self._listens("jackfield_batch_committed")
        if self._policy.observes or listens:
            batch = step.batch
            uids, tokens = batch.shown()
            record = _record(
                StepRecord,
                {
                    "step": batch.step,
                    "started": step.started,
                    "ended": at,
                    "uids": uids,
                    "tokens": tokens,
                    "admitted": batch.admitted,
                    "finished": tuple(ended.finished),
                    "retracted": batch.retracted,
                    "aborted": tuple(ended.aborted),
                    "prefills": batch.prefills,
                    "tenants": _tenants(step),
                    "open_tenants": self._all_open_tenants(),
                },
            )
            if self._policy.observes:
                self._policy.observe(record)
            if listens:
                self._observers.notify("jackfield_batch_committed", record=record)
        self.between_steps()

    def _all_open_tenants(self) -> NDArray[np.int32]:
        """Looked up when somebody came or went: most steps change nothing of it."""
        waiting, running = self._tables
        changes = (waiting.changes, running.changes)
        if changes != self._open_tenants[0]:
            found = np.unique(np.concatenate([table["tenant"] for table in self._tables]))
            found.flags.writeable = False
            self._open_tenants = (changes, found)
        return self._open_tenants[1]

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


def _record(kind: type[Record], fields: dict[str, Any]) -> Record:
    """The record with these fields: all that have no plain default. As its `__init__` makes it, which sets the fields of a
    frozen record with a call for each, and so costs more than all else that a step does for observers."""
    record = object.__new__(kind)
    object.__setattr__(record, "__dict__", fields)
    return record


def _tenants(step: StepInFlight) -> NDArray[np.int32]:
    tenants = step.tenants
    if tenants is None:  # who wants to know came after the launch, with another policy
        tenants = np.array([request.tenant for request in step.requests.tolist()], dtype=np.int32)
        tenants.setflags(write=False)
    return tenants
