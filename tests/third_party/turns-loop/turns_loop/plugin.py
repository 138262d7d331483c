"""Event loop `turns`."""

from __future__ import annotations

from typing import Any

from jackfield.hookspecs import EventLoop, EventLoopContext, SchedulerPhases, StepOutcome, Want, hookimpl
from turns_loop.options import TurnsOptions


class TurnsLoop(EventLoop):
    """One step in flight. owed: steps of decode that come before the next prefill."""

    def __init__(self, options: TurnsOptions, phases: SchedulerPhases) -> None:
        self._decodes = options.decodes
        self._phases = phases
        self._owed = 0

    def step(self) -> StepOutcome:
        phases = self._phases
        phases.ingest()
        phases.poll()
        batch = self._batch()
        if batch is None:
            phases.idle()
            return StepOutcome.IDLE
        step = phases.launch(batch)
        phases.sample(step)
        phases.commit(step)
        return StepOutcome.RAN

    def settle(self) -> None:
        """Nothing to do: between two turns nothing is in flight."""

    def _batch(self) -> Any | None:
        if self._owed:
            batch = self._phases.next_batch(Want.DECODE)
            if batch is not None:
                self._owed -= 1
                return batch
        batch = self._phases.next_batch(Want.PREFILL)
        if batch is not None:
            self._owed = self._decodes
            return batch
        self._owed = 0
        return self._phases.next_batch(Want.DECODE)


@hookimpl
def jackfield_event_loop(context: EventLoopContext) -> EventLoop:
    if not isinstance(context.options, TurnsOptions):
        raise TypeError(f"options of another plugin: {context.options!r}")
    return TurnsLoop(context.options, context.phases)
