"""The moves of the scheduler's state machine: what comes from outside, and two drivers that turn the scheduler between."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jackfield.hookspecs import EventLoop, InFlight, StepOutcome
from jackfield.ipc.messages import AbortRequest, FlushCacheRequest, StopRequest
from jackfield.managers.scheduler.threaded_worker import ThreadedWorker
from jackfield_scheduler_loops.normal import NormalLoop
from jackfield_scheduler_loops.overlap import OverlapLoop
from tests.unit.scheduler.machine_checks import Checks, Totals
from tests.unit.scheduler.machine_setup import STRICT_VOCAB, Setup, setups

LENGTHS = st.one_of(st.integers(1, 40), st.integers(16, 60), st.sampled_from([0, 64, 96, 128, 140]))
NEW = st.one_of(st.integers(0, 8), st.integers(8, 40))
TURNS = st.sampled_from([0, 0, 1, 2, 5, 12])
URGENCY = st.integers(-1, 2)
WHOM = st.sampled_from(["running", "waiting", "gated", "retracted", "any", "all"])


class Moves(RuleBasedStateMachine):
    """What comes from outside; who drives the scheduler is a subclass's. family and totals are set by the test."""

    family: str
    totals: Totals
    workers: tuple[str, ...] = ("strict", "wide", "simulated")

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        self.setup: Setup = data.draw(setups(self.family, self.workers), label="setup")
        self.run = self.setup.make()
        self.checks = Checks(self.setup, self.run)
        self.controls = 0

    def send(self, prompt: list[int], new: int, *, ignore_eos: bool = False, stops: bool = False, **fields: Any) -> str:
        ids = tuple(range(3, 40, 9)) if self.setup.worker != "simulated" else tuple(range(0, 1000, 11))
        stop_ids = ids if stops else ()
        rid = self.run.submit(prompt, max_new_tokens=new, ignore_eos=ignore_eos, stop_token_ids=stop_ids, **fields)
        self.checks.sent(rid, prompt, new, ignore_eos=ignore_eos, stops=stop_ids)
        return rid

    # prompts come from five families, so that many share a prefix
    @rule(
        family=st.integers(0, 4),
        length=LENGTHS,
        new=NEW,
        priority=URGENCY,
        n=st.sampled_from([1, 1, 1, 2, 4]),
        stops=st.booleans(),
        ignore_eos=st.booleans(),
        tenant=st.sampled_from([None, "a", "b"]),
        deadline=st.sampled_from([None, 1.0, 5.0]),
        salt=st.sampled_from([None, None, None, "s"]),
        turns=TURNS,
    )
    def arrive(
        self,
        family: int,
        length: int,
        new: int,
        priority: int,
        n: int,
        stops: bool,
        ignore_eos: bool,
        tenant: str | None,
        deadline: float | None,
        salt: str | None,
        turns: int,
    ) -> None:
        prompt = [family, *(i % STRICT_VOCAB for i in range(length))][:length]
        for _ in range(n):
            self.send(
                prompt,
                new,
                stops=stops,
                ignore_eos=ignore_eos,
                priority=priority,
                tenant=tenant,
                deadline=deadline,
                cache_salt=salt,
            )
        self.turn_on(turns)

    @rule(data=st.data(), back=st.sampled_from([0, 0, 1, 5]), more=st.integers(1, 6), new=NEW, turns=TURNS)
    def go_on(self, data: st.DataObject, back: int, more: int, new: int, turns: int) -> None:
        """The next turn of a conversation, or a branch off it, perhaps while the turn before still runs."""
        answered = [rid for rid, answer in self.run.answers.items() if answer.ids]
        if not answered:
            return
        rid = data.draw(st.sampled_from(answered))
        ids = self.run.answers[rid].ids
        told = ids[: max(0, len(ids) - back)]
        self.send([*self.run.prompts[rid], *told, *range(5, 5 + more)], new)
        self.turn_on(turns)

    @rule(data=st.data(), whom=WHOM, stop=st.booleans())
    def end(self, data: st.DataObject, whom: str, stop: bool) -> None:
        if whom == "all":
            self.run.inbox.send(AbortRequest(abort_all=True))
            return
        found = self.of_kind(whom)
        if not found:
            return
        rid = data.draw(st.sampled_from(found))
        if stop:
            self.checks.stopped.add(rid)
        self.run.inbox.send(StopRequest(rid=rid) if stop else AbortRequest(rid=rid))

    def of_kind(self, whom: str) -> list[str]:
        scheduler = self.run.scheduler
        waiting = scheduler._waiting.table
        if whom == "any":
            return sorted(self.checks.asked)
        if whom == "running":
            return [request.rid for request in scheduler._running["request"].tolist()]
        if whom == "gated":
            return [request.rid for request in scheduler._waiting.gated.values()]
        chosen = waiting["request"] if whom == "waiting" else waiting["request"][waiting["retractions"] > 0]
        return [request.rid for request in chosen.tolist()]

    @rule(timeout=st.sampled_from([0, 3]))
    def flush(self, timeout: int) -> None:
        self.controls += 1
        self.run.inbox.send(FlushCacheRequest(control_id=self.controls, timeout=timeout))

    @rule(data=st.data())
    def swap(self, data: st.DataObject) -> None:
        """Another policy takes over, with steps in flight or not."""
        self.controls += 1
        self.run.swap(data.draw(st.sampled_from(self.setup.swappable)))

    @rule(seconds=st.sampled_from([0.5, 3]))
    def time_passes(self, seconds: float) -> None:
        self.run.clock.advance(seconds)

    @invariant()
    def everything_holds(self) -> None:
        if hasattr(self, "checks"):
            self.checks.after_every_step()

    def polled(self) -> None:
        self.checks.polled_at = self.run.clock.now()

    @rule(turns=st.integers(1, 12))
    def turn_on(self, turns: int) -> None:
        for _ in range(turns):
            self.turn_once()

    def turn_once(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Of what the driver made."""

    def finish(self) -> None:
        """Everything comes to its end within a stated number of turns: each token of what is open computed twice and in a step
        of its own, and the gates and copies."""
        self.turn_once()
        turns = 2 * self.checks.work() + 300
        for _ in range(turns):
            self.turn_once()
            state = self.run.scheduler.state()
            if not (state.running or state.waiting or state.in_flight or state.pending):
                self.turn_once()  # what came last is taken in, and a flush among it is answered
                return
        raise AssertionError(f"it does not end: {self.run.scheduler.state()}")

    def teardown(self) -> None:
        if not hasattr(self, "checks"):
            return
        try:
            for family in range(3):  # enough at once for a small pool to run short
                self.send([family, *range(8)], 20)
            self.finish()
            if self.setup.tiers:  # more than the pool holds, one by one, and then what went first
                for first in (50, 51, 52, 53, 50):
                    self.send([first, *range(100, 140)], 1)
                    self.finish()
            assert len(self.run.replies) == self.controls
            self.checks.at_the_end()
            self.count()
        finally:
            self.close()

    def count(self) -> None:
        counts, scheduler = self.totals.counts, self.run.scheduler
        counts["scheduler steps"] += scheduler.committed_steps
        counts["examples"] += 1
        counts["retractions"] += scheduler.state().retractions
        counts["requests"] += len(self.checks.asked)
        counts["preemptions"] += sum(
            event["event"] == "retracted" and bool(event.get("for_uid"))
            for rid in self.checks.asked
            for life in scheduler.why(rid)["requests"]
            for event in life["events"]
        )
        counts["swaps"] += len(self.run.swaps)
        counts["loads"] += scheduler.state().tiers.get("", {}).get("loads", 0)
        for answer in self.run.answers.values():
            assert answer.finish is not None
            counts[answer.finish.err_type or answer.finish.type] += 1


class PhaseMachine(Moves):
    """Phases in any order that is allowed, up to three steps in flight."""

    def __init__(self) -> None:
        super().__init__()
        self.in_flight: list[InFlight] = []
        self.unsampled: list[InFlight] = []

    @rule()
    def ingest(self) -> None:
        self.run.scheduler.ingest()

    @rule()
    def poll(self) -> None:
        self.run.scheduler.poll()
        self.polled()

    @precondition(lambda self: len(self.in_flight) < 3)
    @rule()
    def launch(self) -> None:
        # A relayed token must be sampled before it is used.
        self.sample_all()
        batch = self.run.scheduler.next_batch()
        if batch is not None:
            step = self.run.scheduler.launch(batch)
            self.in_flight.append(step)
            self.unsampled.append(step)

    @rule()
    def sample_all(self) -> None:
        while self.unsampled:
            self.run.scheduler.sample(self.unsampled.pop(0))

    @precondition(lambda self: self.in_flight)
    @rule()
    def commit(self) -> None:
        self.sample_all()
        self.run.scheduler.commit(self.in_flight.pop(0))

    def turn_once(self) -> None:
        self.sample_all()
        while self.in_flight:
            self.commit()
            self.everything_holds()
        self.checks.before_a_turn()
        now = self.run.clock.now()
        outcome = self.run.turn()
        self.checks.polled_at = now
        self.everything_holds()
        if outcome is StepOutcome.IDLE:
            self.checks.nobody_idles_beside_work()
            self.run.scheduler.wait()


class LoopMachine(Moves):
    """Turns of an event loop: `normal`, or `overlap` at two depths; the worker beside it on its own thread or not."""

    workers = ("strict", "wide", "deferred", "simulated")

    def __init__(self) -> None:
        super().__init__()
        self.depth = 1
        self.worker: ThreadedWorker | None = None

    @initialize(depth=st.integers(1, 3), threaded=st.booleans())
    def choose_loop(self, depth: int, threaded: bool) -> None:
        self.depth, self.threaded = depth, threaded
        self.loop: EventLoop | None = None

    def make_loop(self) -> EventLoop:
        scheduler = self.run.scheduler
        if self.threaded and self.setup.worker != "simulated":  # that one's clock is virtual
            self.worker = ThreadedWorker(scheduler._worker.worker)
            scheduler._worker.worker = self.worker
        return NormalLoop(scheduler) if self.depth == 1 else OverlapLoop(scheduler, self.depth)

    def turn_once(self) -> None:
        if self.loop is None:
            self.loop = self.make_loop()
        self.checks.before_a_turn()
        now = self.run.clock.now()
        outcome = self.loop.step()
        self.checks.polled_at = now
        assert self.run.scheduler.state().in_flight < self.depth
        self.everything_holds()
        if outcome is StepOutcome.IDLE:
            self.checks.nobody_idles_beside_work()
            self.run.scheduler.wait()
        else:
            self.run.clock.advance(0.125)

    @rule()
    def settle(self) -> None:
        if self.loop is not None:
            self.loop.settle()
            assert self.run.scheduler.state().in_flight == 0

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
