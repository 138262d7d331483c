"""The real scheduler through random arrivals, aborts, stops, flushes and phases, with the invariants checked after every
one, on the slow page cache and on the radix and chunk plugins."""

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
    DecodeTurn,
    InFlight,
    PrefixCache,
    RequestTable,
    SchedulePolicy,
    SchedulerView,
    StepBudget,
)
from jackfield.ipc.messages import AbortRequest, FlushCacheRequest, StopRequest
from jackfield.testing.scheduler_fakes import PageCache
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield_cache_prefix.chunk_cache import ChunkCache
from jackfield_cache_prefix.radix_cache import RadixCache


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


class SchedulerMachine(RuleBasedStateMachine):
    make_cache: Callable[[int], PrefixCache]

    @initialize(
        page_size=st.sampled_from([1, 4]),
        budget=st.integers(4, 32),
        whimsical=st.booleans(),
        hold_back=st.sampled_from([0, 4]),
        seed=st.integers(0, 1000),
    )
    def start(self, page_size: int, budget: int, whimsical: bool, hold_back: int, seed: int) -> None:
        self.run = SchedulerHarness(
            cache=type(self).make_cache(page_size),
            policy=Whimsical() if whimsical else None,
            page_size=page_size,
            total_slots=64,
            context_length=48,
            vocab_size=40,
            max_running_requests=3,
            max_prefill_tokens=budget,
            max_queued_requests=6,
            hold_back_tokens=hold_back,
            max_skips=6,
            seed=seed,
            eos_token_ids=(0,),
            policy_needs=frozenset({"cached_tokens"}),
        )
        self.asked: dict[str, int] = {}
        self.in_flight: list[InFlight] = []
        self.unsampled: list[InFlight] = []
        self.flushes = 0

    # prompts come from three families, so that many share a prefix
    @rule(family=st.integers(0, 2), length=st.integers(0, 60), new=st.integers(0, 20))
    def arrive(self, family: int, length: int, new: int) -> None:
        rid = self.run.submit([family, *(i % 40 for i in range(length))][:length], max_new_tokens=new)
        self.asked[rid] = new

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), stop=st.booleans())
    def end(self, data: st.DataObject, stop: bool) -> None:
        rid = data.draw(st.sampled_from(sorted(self.asked)))
        self.run.inbox.send(StopRequest(rid=rid) if stop else AbortRequest(rid=rid))

    @rule()
    def flush(self) -> None:
        self.flushes += 1
        self.run.inbox.send(FlushCacheRequest(control_id=self.flushes))

    @rule()
    def ingest(self) -> None:
        self.run.scheduler.ingest()

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

    @invariant()
    def everything_holds(self) -> None:
        if hasattr(self, "run"):
            self.run.collect()
            self.run.scheduler.check_invariants()

    def teardown(self) -> None:
        if not hasattr(self, "run"):
            return
        self.sample_all()
        while self.in_flight:
            self.commit()
        self.run.run()
        assert set(self.run.answers) == set(self.asked)
        assert len(self.run.replies) == self.flushes
        for rid, new in self.asked.items():
            answer = self.run.answers[rid]
            assert answer.finish is not None
            expected = self.run.expected(rid, new)
            if 0 in expected:
                expected = expected[: expected.index(0) + 1]
            assert answer.ids == expected[: len(answer.ids)]
            if answer.finish.type == "length":
                assert answer.finish.length == len(answer.ids) <= new
        self.run.assert_at_rest()


MACHINES = {
    "page": PageCache,
    "radix": lambda page_size: RadixCache(page_size=page_size),
    "chunk": lambda page_size: ChunkCache(page_size=page_size),
}


@pytest.mark.soak
@pytest.mark.parametrize("cache", MACHINES)
def test_scheduler_machine(cache: str, soak_factor: int) -> None:
    machine = type(f"SchedulerMachine_{cache}", (SchedulerMachine,), {"make_cache": staticmethod(MACHINES[cache])})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=40 * soak_factor, stateful_step_count=40, deadline=None)
    )
