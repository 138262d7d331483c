"""Event loops with one fault each."""

from __future__ import annotations

from typing import Any

from jackfield.hookspecs import EventLoop, StepOutcome, hookimpl

EVERY = "every_step_is_sampled_and_committed_once_in_order"
DEPTH, SETTLE = "depth_is_what_the_manifest_says", "settle_leaves_nothing_in_flight"
RAISES, TURN = "what_a_phase_raises_comes_out", "a_turn_says_whether_it_did_something"
CAUGHT = {
    "good": (),
    "newest-first": (EVERY, "*"),
    "leaves-the-last": (EVERY, "*"),
    "deeper-than-it-says": (DEPTH,),
    "not-as-deep": (DEPTH,),
    "samples-deferred-at-once": ("deferred_steps_wait_for_the_earlier_commits",),
    "never-polls": ("messages_and_gates_are_looked_at_every_turn", RAISES),
    "always-busy": (TURN,),
    "spins": ("an_idle_turn_is_one_look",),
    "swallows-errors": (RAISES,),
    "settles-nothing": (SETTLE,),
    "settles-by-running": (SETTLE,),
}
OVERLAP = frozenset({"newest-first", "leaves-the-last", "not-as-deep", "samples-deferred-at-once", "settles-nothing"})


class Good(EventLoop):
    depth = 1

    def __init__(self, phases: Any) -> None:
        self.phases = phases
        self.flying: list[Any] = []

    def look(self) -> Any:
        self.phases.ingest()
        self.phases.poll()
        return self.phases.next_batch()

    def step(self) -> StepOutcome:
        batch = self.look()
        if batch is not None:
            self.launch(batch)
            self.commit_until(self.depth - 1)
            return StepOutcome.RAN
        if self.flying:
            self.commit_one()
            return StepOutcome.RAN
        self.phases.idle()
        return StepOutcome.IDLE

    def launch(self, batch: Any) -> None:
        step = self.phases.launch(batch)
        self.flying.append(step)
        if step.deferred:
            self.commit_until(1)
        self.phases.sample(step)

    def commit_until(self, left: int) -> None:
        while len(self.flying) > left:
            self.commit_one()

    def commit_one(self) -> None:
        self.phases.commit(self.flying[0])
        del self.flying[0]

    def settle(self) -> None:
        self.commit_until(0)


class NewestFirst(Good):
    depth = 2

    def commit_one(self) -> None:
        self.phases.commit(self.flying.pop())


class LeavesTheLast(Good):
    depth = 2

    def step(self) -> StepOutcome:
        batch = self.look()
        if batch is None:
            return StepOutcome.IDLE
        self.launch(batch)
        self.commit_until(self.depth - 1)
        return StepOutcome.RAN


class DeeperThanItSays(Good):
    depth = 2


class NotAsDeep(Good):
    pass


class SamplesDeferredAtOnce(Good):
    depth = 2

    def launch(self, batch: Any) -> None:
        step = self.phases.launch(batch)
        self.flying.append(step)
        self.phases.sample(step)


class NeverPolls(Good):
    def look(self) -> Any:
        self.phases.ingest()
        return self.phases.next_batch()


class AlwaysBusy(Good):
    def step(self) -> StepOutcome:
        super().step()
        return StepOutcome.RAN


class Spins(Good):
    def look(self) -> Any:
        for _ in range(10):
            if (batch := super().look()) is not None:
                return batch
        return None


class SwallowsErrors(Good):
    def launch(self, batch: Any) -> None:
        step = self.phases.launch(batch)
        self.flying.append(step)
        try:
            self.phases.sample(step)
        except RuntimeError:
            self.phases.sample(step)


class SettlesNothing(Good):
    depth = 2

    def settle(self) -> None:
        pass


class SettlesByRunning(Good):
    def settle(self) -> None:
        while self.step() is StepOutcome.RAN:
            pass


@hookimpl
def jackfield_event_loop(context: Any) -> EventLoop:
    made: EventLoop = globals()[context.name.replace("-", " ").title().replace(" ", "")](context.phases)
    return made
