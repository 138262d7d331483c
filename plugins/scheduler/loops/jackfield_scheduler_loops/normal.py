"""Event loop `normal`: each step is committed before the next one is decided. The loop to read first, and to debug with."""

from __future__ import annotations

from jackfield.hookspecs import EventLoop, EventLoopContext, SchedulerPhases, StepOutcome, hookimpl


class NormalLoop(EventLoop):
    def __init__(self, phases: SchedulerPhases) -> None:
        self._phases = phases

    def step(self) -> StepOutcome:
        phases = self._phases
        phases.ingest()
        phases.poll()
        batch = phases.next_batch()
        if batch is None:
            phases.idle()
            return StepOutcome.IDLE
        step = phases.launch(batch)
        phases.sample(step)
        phases.commit(step)
        return StepOutcome.RAN

    def settle(self) -> None:
        """Nothing to do: between two turns nothing is in flight."""


@hookimpl
def jackfield_event_loop(context: EventLoopContext) -> EventLoop:
    return NormalLoop(context.phases)
