"""Phases for event loops: made-up ones that hold a loop to the rules of `SchedulerPhases`, and a layer over a real scheduler
that defers steps and finds no batch where there is one."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from jackfield.hookspecs import InFlight, SchedulerPhases, Wake, Want


class MadeStep:
    def __init__(self, number: int, deferred: bool) -> None:
        self.number, self.deferred = number, deferred
        self.sampled = False

    def ready(self) -> bool:
        return True


class StrictPhases:
    """work: for each decision, whether there is a batch. deferred: numbers of the steps that are, from 1.

    calls      names of the phases in order, with the step's number
    counts     calls by name
    most       most steps that were in flight at one time
    fail       the phase and step that raises, as in `calls`
    """

    def __init__(self, *work: bool, deferred: frozenset[int] = frozenset()) -> None:
        self.work, self.deferred = list(work), deferred
        self.calls: list[str] = []
        self.counts: Counter[str] = Counter()
        self.flying: list[MadeStep] = []
        self.launched = self.most = 0
        self.fail = ""
        self._batch: object | None = None

    def ingest(self) -> int:
        self._note("ingest")
        return 0

    def poll(self) -> int:
        self._note("poll")
        return 0

    def next_batch(self, want: Want = Want.ANY) -> Any | None:
        self._note("next_batch")
        assert self._batch is None, "a batch that was decided is not launched before the next is asked for"
        self._batch = object() if self.work and self.work.pop(0) else None
        return self._batch

    def launch(self, batch: Any, lane: int = 0) -> MadeStep:
        assert batch is self._batch is not None, "what is launched is not the batch that was decided"
        assert all(step.sampled for step in self.flying), "a step is launched before the one before it is sampled"
        self._batch = None
        self.launched += 1
        self._note("launch", self.launched)
        step = MadeStep(self.launched, self.launched in self.deferred)
        self.flying.append(step)
        self.most = max(self.most, len(self.flying))
        return step

    def sample(self, step: Any) -> None:
        assert step in self.flying, "a step is sampled that is not in flight"
        assert not step.sampled, "a step is sampled twice"
        assert not step.deferred or step is self.flying[0], "a deferred step is sampled before the earlier commits"
        step.sampled = True
        self._note("sample", step.number)

    def commit(self, step: Any) -> None:
        assert self.flying, "a step is committed that is not in flight"
        assert step is self.flying[0], "steps are not committed in the order of their launch"
        assert step.sampled, "a step is committed that was not sampled"
        self._note("commit", step.number)
        del self.flying[0]

    def wait(self, until: float | None = None) -> Wake:
        raise AssertionError("a loop's step waits for messages")

    def idle(self) -> None:
        assert not self.flying, "idle is called while a step is in flight"
        self._note("idle")

    def _note(self, name: str, number: int | None = None) -> None:
        call = name if number is None else f"{name} {number}"
        self.calls.append(call)
        self.counts[name] += 1
        if call == self.fail:
            raise RuntimeError(call)


class Whims:
    """Passes the phases of a scheduler on; some steps are deferred, and some decisions find nothing though there is work."""

    def __init__(self, phases: SchedulerPhases, seed: int, *, deferred: float = 0.0, nothing: float = 0.0) -> None:
        self._phases, self._random = phases, random.Random(seed)
        self._deferred, self._nothing = deferred, nothing
        self._flying: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._phases, name)

    def next_batch(self, want: Want = Want.ANY) -> Any | None:
        return None if self._random.random() < self._nothing else self._phases.next_batch(want)

    def launch(self, batch: Any, lane: int = 0) -> InFlight:
        step: Any = self._phases.launch(batch, lane)
        step.deferred = step.deferred or self._random.random() < self._deferred
        self._flying.append(step)
        return step  # type: ignore[no-any-return]

    def sample(self, step: Any) -> None:
        assert not step.deferred or self._flying[0] is step, "a deferred step is sampled before the earlier commits"
        self._phases.sample(step)

    def commit(self, step: Any) -> None:
        self._phases.commit(step)
        self._flying.remove(step)
