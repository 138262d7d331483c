"""Loops with several steps in flight: tokens relayed on the device, ends seen late, surplus tokens thrown away."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from jackfield.hookspecs import InFlight, RequestTable, SchedulePolicy, SchedulerView
from jackfield.testing.scheduler_harness import SchedulerHarness


class DeepLoop:
    """Launches up to `depth` steps before it commits the oldest."""

    def __init__(self, run: SchedulerHarness, depth: int) -> None:
        self.run = run
        self.depth = depth
        self.flying: deque[InFlight] = deque()

    def turn(self) -> bool:
        scheduler = self.run.scheduler
        scheduler.ingest()
        batch = scheduler.next_batch()
        if batch is not None:
            step = scheduler.launch(batch)
            scheduler.sample(step)
            self.flying.append(step)
        elif not self.flying:
            scheduler.idle()
            self.run.collect()
            return False
        if len(self.flying) >= self.depth or batch is None:
            scheduler.commit(self.flying.popleft())
        self.run.collect()
        return True

    def finish(self) -> None:
        for _ in range(10_000):
            if not self.turn():
                return
        raise AssertionError("it did not end")


class OneOfEachTenant(SchedulePolicy):
    """most: most requests of one tenant that ran when `order` was asked."""

    most = 0

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        running = view.running.tenant
        self.most = max(self.most, int(np.unique(running, return_counts=True)[1].max(initial=0)))
        first = np.unique(waiting.tenant, return_index=True)[1]
        return first[~np.isin(waiting.tenant[first], running)]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_policy_sees_who_runs_while_their_first_step_is_in_flight(depth: int) -> None:
    policy = OneOfEachTenant()
    run = SchedulerHarness(policy=policy)
    for i in range(8):
        run.submit([1, 2, i], max_new_tokens=4, tenant=("a", "b")[i % 2])
    DeepLoop(run, depth).finish()
    assert policy.most == 1
    assert all(answer.ids == run.expected(rid, 4) for rid, answer in run.answers.items())
    run.assert_at_rest()


@pytest.mark.parametrize("depth", [2, 3])
def test_decode_tokens_are_relayed_and_never_awaited(depth: int) -> None:
    run = SchedulerHarness()
    rid = run.submit([1, 2, 3], max_new_tokens=6)
    loop = DeepLoop(run, depth)
    loop.finish()
    assert run.answers[rid].ids == run.expected(rid, 6)
    assert len(run.worker.batches) == 6  # the cap is known at launch: no step too many
    relays = [bool(batch.relay[0]) for batch in run.worker.batches]
    assert relays == [False] + [True] * 5
    assert all(batch.token_ids[-1] == 0 for batch in run.worker.batches[1:])
    run.assert_at_rest()


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_an_end_token_seen_late_emits_nothing_more(depth: int) -> None:
    run = SchedulerHarness(vocab_size=50, page_size=4, max_running_requests=2)
    stop = run.submit([3, 1, 4], rid="a", max_new_tokens=30)
    tokens = run.expected(stop, 30)
    end = tokens[3]
    first = tokens.index(end)
    run.submit([3, 1, 4], rid="stops", max_new_tokens=30, stop_token_ids=(end,))
    run.submit([2, 7, 1], rid="next", max_new_tokens=9)
    loop = DeepLoop(run, depth)
    loop.finish()
    assert run.answers["a"].ids == tokens
    assert run.answers["stops"].ids == tokens[: first + 1]
    assert run.answers["next"].ids == run.expected("next", 9)
    run.assert_at_rest()


@settings(max_examples=60, deadline=None)
@given(
    depth=st.integers(1, 3),
    page_size=st.sampled_from([1, 4]),
    budget=st.integers(4, 40),
    events=st.lists(
        st.one_of(
            st.tuples(st.just("arrive"), st.integers(1, 30), st.integers(0, 12)),
            st.tuples(st.just("abort"), st.integers(1, 12), st.just(0)),
            st.tuples(st.just("turns"), st.integers(1, 4), st.just(0)),
        ),
        max_size=25,
    ),
)
def test_any_depth_gives_the_same_tokens(
    depth: int, page_size: int, budget: int, events: list[tuple[str, int, int]]
) -> None:
    run = SchedulerHarness(page_size=page_size, total_slots=96, max_prefill_tokens=budget, max_running_requests=4)
    loop = DeepLoop(run, depth)
    asked: dict[str, int] = {}
    for what, number, new in events:
        if what == "arrive":
            rid = run.submit([len(asked) % 3, *range(number)][:number], max_new_tokens=new)
            asked[rid] = new
        elif what == "abort":
            run.abort(f"r{number}")
        else:
            for _ in range(number):
                loop.turn()
    loop.finish()
    assert set(run.answers) == set(asked)
    for rid, new in asked.items():
        answer = run.answers[rid]
        assert answer.finish is not None
        expected = run.expected(rid, new)
        if answer.finish.type == "abort":
            assert answer.ids == expected[: len(answer.ids)]
        else:
            assert answer.ids == expected
    run.assert_at_rest()
