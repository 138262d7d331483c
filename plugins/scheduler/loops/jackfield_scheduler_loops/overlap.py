"""Event loop `overlap`: step k is committed while step k+1 runs, so that the worker need not wait for the scheduler.

Step k+1 is decided before the tokens of step k are known here: the worker relays them by row, and what it computes for a
request that turns out to have ended with step k is thrown away by the commit. Nobody sees such a token, and its slot can be
given to another request at once, because the worker runs the steps in the order of their launch.
"""

from __future__ import annotations

from collections import deque

from jackfield.hookspecs import EventLoop, EventLoopContext, InFlight, SchedulerPhases, StepOutcome, hookimpl


class OverlapLoop(EventLoop):
    """depth: most steps in flight between a launch and the commit that follows it; 1 is the loop `normal`."""

    def __init__(self, phases: SchedulerPhases, depth: int = 2) -> None:
        if depth < 1:
            raise ValueError(f"depth is {depth}; at least one step must be in flight")
        self._phases = phases
        self._depth = depth
        self._in_flight: deque[InFlight] = deque()

    def step(self) -> StepOutcome:
        phases = self._phases
        phases.ingest()
        phases.poll()
        batch = phases.next_batch()
        if batch is None and not self._in_flight:
            phases.idle()
            return StepOutcome.IDLE
        if batch is None:
            self._commit()
            return StepOutcome.RAN
        step = phases.launch(batch)
        self._in_flight.append(step)
        if step.deferred:
            # Its sampling waits for the tokens of those before it, and the next launch, which may relay its own, for that.
            self._commit_until(1)
        phases.sample(step)
        self._commit_until(self._depth - 1)
        return StepOutcome.RAN

    def settle(self) -> None:
        self._commit_until(0)

    def _commit_until(self, left: int) -> None:
        while len(self._in_flight) > left:
            self._commit()

    def _commit(self) -> None:
        self._phases.commit(self._in_flight[0])
        self._in_flight.popleft()


@hookimpl
def jackfield_event_loop(context: EventLoopContext) -> EventLoop:
    return OverlapLoop(context.phases)
