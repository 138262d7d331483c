"""The real scheduler through random arrivals, aborts, stops, timeouts and flushes, with the invariants checked after every
move, on the slow page cache and on the radix and chunk plugins: once phase by phase, in any order that the contract
allows, and once turn by turn under the event loops, the worker beside them on its own thread or not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from numpy.typing import NDArray

from jackfield.hookspecs import (
    Amounts,
    DecodeTurn,
    EventLoop,
    InFlight,
    PrefixCache,
    RequestTable,
    SchedulePolicy,
    SchedulerView,
    StepBudget,
)
from jackfield.ipc.messages import AbortRequest, FlushCacheRequest, StopRequest
from jackfield.managers.scheduler.threaded_worker import ThreadedWorker
from jackfield.testing.scheduler_fakes import PageCache
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield_cache_prefix.chunk_cache import ChunkCache
from jackfield_cache_prefix.radix_cache import RadixCache
from jackfield_scheduler_loops.normal import NormalLoop
from jackfield_scheduler_loops.overlap import OverlapLoop


class Whimsical(SchedulePolicy):
    """Shuffles, drops and mixes by the step's seed."""

    def budget(self, view: SchedulerView) -> StepBudget:
        turns = tuple(DecodeTurn)
        return StepBudget(
            prefill_tokens=1 + view.seed % 40, decode=turns[view.seed % 3], partial_prefills=view.seed % 3
        )

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        rng = np.random.default_rng(view.seed)
        return rng.permutation(len(waiting))[: rng.integers(0, len(waiting) + 1)]

    def victims(
        self, running: RequestTable, need: Amounts, for_row: int | None, view: SchedulerView
    ) -> NDArray[np.intp]:
        rng = np.random.default_rng(view.seed)
        return rng.permutation(len(running))[: rng.integers(0, len(running) + 1)]


class Moves(RuleBasedStateMachine):
    """What comes from outside, and what must hold; who drives the scheduler is a subclass's."""

    make_cache: Callable[[int], PrefixCache]
    retractions: list[int]

    @initialize(
        page_size=st.sampled_from([1, 4]),
        budget=st.integers(4, 32),
        whimsical=st.booleans(),
        hold_back=st.sampled_from([0, 4]),
        chunk=st.sampled_from([None, 4, -1]),
        in_a_row=st.sampled_from([1, 3, 8]),
        waiting=st.sampled_from([None, 4]),
        running=st.sampled_from([None, 6]),
        seed=st.integers(0, 1000),
        slots=st.sampled_from([32, 64]),
        conservativeness=st.sampled_from([0.01, 1.0, 11.0]),
    )
    def start(
        self,
        page_size: int,
        budget: int,
        whimsical: bool,
        hold_back: int,
        seed: int,
        chunk: int | None,
        in_a_row: int,
        waiting: int | None,
        running: int | None,
        slots: int,
        conservativeness: float,
    ) -> None:
        self.run = SchedulerHarness(
            cache=type(self).make_cache(page_size),
            policy=Whimsical() if whimsical else None,
            page_size=page_size,
            total_slots=slots,
            schedule_conservativeness=conservativeness,
            context_length=48,
            vocab_size=40,
            max_running_requests=3,
            max_prefill_tokens=budget,
            chunked_prefill_size=chunk,
            max_consecutive_prefills=in_a_row,
            request_waiting_timeout=waiting,
            request_running_timeout=running,
            max_queued_requests=6,
            hold_back_tokens=hold_back,
            max_skips=6,
            seed=seed,
            eos_token_ids=(0,),
            policy_needs=frozenset({"cached_tokens"}),
        )
        self.asked: dict[str, int] = {}
        self.flushes = 0

    # prompts come from three families, so that many share a prefix
    @rule(family=st.integers(0, 2), length=st.integers(0, 60), new=st.integers(0, 20), priority=st.integers(0, 2))
    def arrive(self, family: int, length: int, new: int, priority: int) -> None:
        rid = self.run.submit(
            [family, *(i % 40 for i in range(length))][:length], max_new_tokens=new, priority=priority
        )
        self.asked[rid] = new

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), stop=st.booleans())
    def end(self, data: st.DataObject, stop: bool) -> None:
        rid = data.draw(st.sampled_from(sorted(self.asked)))
        self.run.inbox.send(StopRequest(rid=rid) if stop else AbortRequest(rid=rid))

    @rule(timeout=st.sampled_from([0, 3]))
    def flush(self, timeout: int) -> None:
        self.flushes += 1
        self.run.inbox.send(FlushCacheRequest(control_id=self.flushes, timeout=timeout))

    @rule(seconds=st.sampled_from([0.5, 3]))
    def time_passes(self, seconds: float) -> None:
        self.run.clock.advance(seconds)

    @invariant()
    def everything_holds(self) -> None:
        if hasattr(self, "run"):
            self.run.collect()
            self.run.scheduler.check_invariants()
            self.nothing_wrong_was_shown()
            self.the_record_is_true()

    def the_record_is_true(self) -> None:
        lives = self.run.scheduler._decisions.lives
        state = self.run.scheduler.state()
        waits = [life for life in lives if life.seen is not None]
        assert len(waits) == state.waiting
        assert sum(1 for _ in lives) == state.waiting + state.running
        for life in waits:
            assert life.seen is not None
            counts = [own + now - then for own, now, then in zip(life.waits, lives.rounds, life.seen, strict=True)]
            assert min(counts) >= 0, counts

    def nothing_wrong_was_shown(self) -> None:
        for rid, answer in self.run.answers.items():
            assert answer.ids == self.expected(rid)[: len(answer.ids)]

    def expected(self, rid: str) -> list[int]:
        tokens = self.run.expected(rid, self.asked[rid])
        return tokens[: tokens.index(0) + 1] if 0 in tokens else tokens

    def finish(self) -> None:
        raise NotImplementedError

    def teardown(self) -> None:
        if not hasattr(self, "run"):
            return
        for family in range(3):  # enough at once for a small pool to run short
            self.arrive(family=family, length=8, new=20, priority=0)
        self.finish()
        assert set(self.run.answers) == set(self.asked)
        assert len(self.run.replies) == self.flushes
        self.nothing_wrong_was_shown()
        for rid, new in self.asked.items():
            answer = self.run.answers[rid]
            assert answer.finish is not None
            self.the_life_is_the_answers(rid)
            if answer.finish.type == "length":
                assert answer.finish.length == len(answer.ids) <= new
                assert answer.ids == self.expected(rid)[: answer.finish.length]
        self.run.assert_at_rest()
        type(self).retractions.append(self.run.scheduler.state().retractions)

    def the_life_is_the_answers(self, rid: str) -> None:
        """What `why` tells of a request that ended is what its client was told."""
        answer = self.run.answers[rid]
        (life,) = self.run.scheduler.why(rid)["requests"]
        kinds = [event["event"] for event in life["events"]]
        if kinds == ["refused"]:
            assert answer.ids == []
            return
        ended = life["events"][-1]
        assert (ended["event"], ended["type"], ended["outputs"]) == ("ended", answer.last.finish.type, len(answer.ids))  # type: ignore[union-attr]
        assert kinds.count("retracted") == answer.last.retractions
        assert kinds.count("admitted") - kinds.count("retracted") in (0, 1)
        assert ("first_token" in kinds) == bool(answer.ids)
        computed = sum(event["tokens"] for event in life["events"] if event["event"] == "prefill")
        if ended["type"] == "length" and "retracted" not in kinds:
            assert computed == life["prompt_tokens"] - life["events"][kinds.index("admitted")]["cached"]


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

    def finish(self) -> None:
        self.sample_all()
        while self.in_flight:
            self.commit()
        for _ in range(10_000):
            self.run.turn()
            self.everything_holds()
            state = self.run.scheduler.state()
            if not (state.running or state.waiting):
                self.run.turn()  # what came last is taken in, and a flush among it is answered
                return
        raise AssertionError(f"it does not end: {self.run.scheduler.state()}")


class LoopMachine(Moves):
    """Turns of an event loop: `normal`, or `overlap` at two depths."""

    def __init__(self) -> None:
        super().__init__()
        self.depth, self.threaded = 1, False
        self.loop: EventLoop | None = None
        self.worker: ThreadedWorker | None = None

    @initialize(depth=st.integers(1, 3), threaded=st.booleans())
    def choose_loop(self, depth: int, threaded: bool) -> None:
        self.depth, self.threaded = depth, threaded

    @rule(turns=st.integers(1, 4))
    def turn(self, turns: int) -> None:
        scheduler = self.run.scheduler
        if self.loop is None:
            self.loop = NormalLoop(scheduler) if self.depth == 1 else OverlapLoop(scheduler, self.depth)
            if self.threaded:
                self.worker = ThreadedWorker(scheduler._worker.worker)
                scheduler._worker.worker = self.worker
        for _ in range(turns):
            self.loop.step()
            assert scheduler.state().in_flight < self.depth
            self.everything_holds()

    @precondition(lambda self: self.loop is not None)
    @rule()
    def settle(self) -> None:
        assert self.loop is not None
        self.loop.settle()
        assert self.run.scheduler.state().in_flight == 0

    def finish(self) -> None:
        try:
            for _ in range(10_000):
                self.turn(1)
                state = self.run.scheduler.state()
                if not (state.running or state.waiting or state.in_flight):
                    self.turn(1)  # what came last is taken in, and a flush among it is answered
                    return
            raise AssertionError(f"it does not end: {self.run.scheduler.state()}")
        finally:
            if self.worker is not None:
                self.worker.close()


MACHINES = {
    "page": PageCache,
    "radix": lambda page_size: RadixCache(page_size=page_size),
    "chunk": lambda page_size: ChunkCache(page_size=page_size),
}


@pytest.mark.soak
@pytest.mark.parametrize("driver", [PhaseMachine, LoopMachine])
@pytest.mark.parametrize("cache", MACHINES)
def test_scheduler_machine(cache: str, driver: type[Moves], soak_factor: int) -> None:
    retractions: list[int] = []
    members = {"make_cache": staticmethod(MACHINES[cache]), "retractions": retractions}
    machine = type(f"{driver.__name__}_{cache}", (driver,), members)
    run_state_machine_as_test(
        machine, settings=settings(max_examples=40 * soak_factor, stateful_step_count=40, deadline=None)
    )
    assert sum(retractions) > 0, "the pool was never so small that anybody was retracted"
