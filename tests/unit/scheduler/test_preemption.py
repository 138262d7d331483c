"""A more urgent request takes the place or the memory of running ones: all that it needs or nothing, never from its equals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from jackfield.hookspecs import Amounts, RequestTable, SchedulerView
from jackfield.testing.page_cache import NoSharingCache
from jackfield.testing.scheduler_harness import ArrivalOrder, SchedulerHarness
from jackfield_cache_prefix.radix_cache import RadixCache
from jackfield_scheduler_loops.normal import NormalLoop
from jackfield_scheduler_loops.overlap import OverlapLoop
from jackfield_scheduler_policies.priority import PriorityFirst, PriorityOptions


def by_priority(**options: Any) -> PriorityFirst:
    return PriorityFirst(PriorityOptions(**options))


def prompt(seed: int, length: int) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(0, 1000, length).tolist()
    return ids


def running(run: SchedulerHarness) -> list[str]:
    return [request.rid for request in run.scheduler._running["request"]]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_b50_an_urgent_request_starts_within_a_few_steps_and_the_others_finish(depth: int) -> None:
    run = SchedulerHarness(policy=by_priority(), max_running_requests=2)
    loop = NormalLoop(run.scheduler) if depth == 1 else OverlapLoop(run.scheduler, depth)
    low = [run.submit(prompt(i, 10), max_new_tokens=60) for i in range(2)]
    for _ in range(5):
        loop.step()
    high = run.submit(prompt(9, 10), max_new_tokens=5, priority=11)
    for _ in range(2 * depth):
        loop.step()
    run.collect()
    assert high in running(run)
    assert low[1] not in running(run)  # the newest of the equals
    for _ in range(300):
        loop.step()
    run.collect()
    assert run.answers[high].ids == run.expected(high, 5)
    for rid in low:
        assert run.answers[rid].ids == run.expected(rid, 60)
    assert [run.answers[rid].last.retractions for rid in (*low, high)] == [0, 1, 0]
    run.assert_at_rest()


@pytest.mark.parametrize("policy", [by_priority(), by_priority(preempt_difference=0), by_priority(ageing=1000.0)])
def test_b50_equals_never_preempt_each_other(policy: PriorityFirst) -> None:
    run = SchedulerHarness(policy=policy, max_running_requests=2, total_slots=64, schedule_conservativeness=11)
    rids = [run.submit(prompt(i, 1 + i % 20), max_new_tokens=1 + i % 7, priority=3) for i in range(50)]
    run.run()
    assert run.scheduler.state().retractions == 0
    for i, rid in enumerate(rids):
        assert run.answers[rid].ids == run.expected(rid, 1 + i % 7)


@pytest.mark.parametrize(("difference", "preempts"), [(10, False), (9, True), (-1, False)])
def test_how_much_more_urgent_it_must_be(difference: int, preempts: bool) -> None:
    run = SchedulerHarness(policy=by_priority(preempt_difference=difference), max_running_requests=1)
    low = run.submit(prompt(1, 10), max_new_tokens=30, priority=-3)
    run.turn()
    high = run.submit(prompt(2, 10), max_new_tokens=3, priority=7)
    run.turn()
    assert running(run) == [high if preempts else low]
    run.run()
    assert run.answers[low].ids == run.expected(low, 30)


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("make", [RadixCache, NoSharingCache])
def test_memory_is_taken_lowest_priority_first_and_no_more_than_needed(make: Any, page_size: int) -> None:
    run = SchedulerHarness(
        cache=make(page_size=page_size),
        policy=by_priority(),
        page_size=page_size,
        total_slots=128,
        schedule_conservativeness=11,
    )
    first = run.submit(prompt(1, 25), max_new_tokens=8, priority=2)  # 32 slots each
    lowest = run.submit(prompt(2, 25), max_new_tokens=8, priority=1)
    second = run.submit(prompt(3, 25), max_new_tokens=8, priority=2)
    third = run.submit(prompt(4, 25), max_new_tokens=8, priority=2)
    run.turn()
    assert len(running(run)) == 4
    high = run.submit(prompt(5, 57), max_new_tokens=8, priority=20)
    run.turn()
    assert set(running(run)) == {first, second, high}
    run.run()
    assert [run.answers[rid].last.retractions for rid in (first, lowest, second, third)] == [0, 1, 0, 1]
    for rid in (first, lowest, second, third, high):
        assert run.answers[rid].ids == run.expected(rid, 8)
    run.assert_at_rest()


def test_nobody_is_retracted_if_it_would_not_suffice() -> None:
    run = SchedulerHarness(policy=by_priority(), total_slots=64, schedule_conservativeness=11)
    low = run.submit(prompt(1, 13), max_new_tokens=8, priority=0)  # 20 slots
    equal = run.submit(prompt(2, 33), max_new_tokens=8, priority=20)  # 40 slots
    run.turn()
    high = run.submit(prompt(3, 33), max_new_tokens=8, priority=20)
    run.turn()
    assert running(run) == [equal, low]
    run.run()
    assert run.scheduler.state().retractions == 0
    assert run.answers[low].ids == run.expected(low, 8)
    assert run.answers[high].ids == run.expected(high, 8)


def test_memory_shared_with_somebody_who_stays_is_not_counted() -> None:
    """The victim's whole prompt is also another's: its retraction would free its outputs alone."""
    shared = prompt(1, 40)
    run = SchedulerHarness(
        cache=RadixCache(page_size=1), policy=by_priority(), total_slots=64, schedule_conservativeness=11
    )
    important = run.submit([*shared, 1], max_new_tokens=9, priority=20)
    run.turn()
    low = run.submit([*shared, 2], max_new_tokens=9)
    run.turn()
    assert running(run) == [important, low]
    run.submit(prompt(2, 30), max_new_tokens=1, priority=20)
    run.turn()
    assert running(run) == [important, low]
    assert run.scheduler.state().retractions == 0
    run.run()


def test_ageing_makes_no_ping_pong() -> None:
    """The one that was preempted leads the order soon, but takes nothing back."""
    run = SchedulerHarness(policy=by_priority(ageing=5.0), max_running_requests=1)
    low = run.submit(prompt(1, 5), max_new_tokens=20)
    run.turn()
    high = run.submit(prompt(2, 5), max_new_tokens=20, priority=15)
    run.run()
    assert run.scheduler.state().retractions == 1
    assert run.answers[low].ids == run.expected(low, 20)
    assert run.answers[high].ids == run.expected(high, 20)


def test_whoever_was_passed_over_too_often_is_left_alone() -> None:
    run = SchedulerHarness(policy=by_priority(), max_running_requests=1, max_skips=3)
    low = run.submit(prompt(1, 5), max_new_tokens=40)
    run.turn()
    urgent = 0
    while low not in run.answers or run.answers[low].finish is None:
        run.submit(prompt(2 + urgent, 5), max_new_tokens=1, priority=20)
        urgent += 1
        run.turn()
        assert urgent < 100
    assert run.answers[low].ids == run.expected(low, 40)
    assert run.answers[low].last.retractions <= 4
    run.run()
    run.assert_at_rest()


class TakesAll(ArrivalOrder):
    """Names everybody as a victim, urgent or not."""

    def victims(
        self, running: RequestTable, need: Amounts, for_row: int | None, view: SchedulerView
    ) -> NDArray[np.intp]:
        rows: NDArray[np.intp] = np.arange(len(running))
        return rows


def test_no_policy_can_preempt_equals() -> None:
    run = SchedulerHarness(policy=TakesAll(), max_running_requests=1)
    first, second = (run.submit(prompt(i, 5), max_new_tokens=5) for i in range(2))
    run.run()
    assert run.scheduler.state().retractions == 0
    assert run.answers[first].ids == run.expected(first, 5)
    assert run.answers[second].ids == run.expected(second, 5)


def test_with_steps_in_flight_nothing_is_planned_until_they_are_committed() -> None:
    run = SchedulerHarness(policy=by_priority(), max_running_requests=1)
    scheduler = run.scheduler
    low = run.submit(prompt(1, 5), max_new_tokens=20)
    run.turn()
    step = scheduler.launch(scheduler.next_batch())  # type: ignore[arg-type]
    scheduler.sample(step)
    high = run.submit(prompt(2, 5), max_new_tokens=2, priority=20)
    scheduler.ingest()
    assert scheduler.next_batch() is None
    assert running(run) == [low]
    scheduler.commit(step)
    assert scheduler.next_batch() is not None
    assert running(run) == [high]


@settings(max_examples=50, deadline=None)
@given(
    page_size=st.sampled_from([1, 4]),
    depth=st.integers(1, 3),
    places=st.integers(1, 4),
    budget=st.sampled_from([4, 16, 1000]),
    conservativeness=st.sampled_from([0.01, 1.0, 11.0]),
    ageing=st.sampled_from([0.0, 3.0]),
    arrivals=st.lists(
        st.tuples(st.integers(1, 30), st.integers(0, 25), st.integers(-20, 20), st.integers(0, 4)), max_size=12
    ),
)
@example(  # two who fill the pool to the last slot but one, the first with all its tokens sampled and not yet committed
    page_size=1,
    depth=2,
    places=2,
    budget=4,
    conservativeness=11.0,
    ageing=0.0,
    arrivals=[(16, 16, 0, 0), (17, 16, 0, 0)],
)
def test_everybody_ends_with_their_own_tokens(
    page_size: int,
    depth: int,
    places: int,
    budget: int,
    conservativeness: float,
    ageing: float,
    arrivals: list[tuple[int, int, int, int]],
) -> None:
    run = SchedulerHarness(
        cache=RadixCache(page_size=page_size),
        policy=by_priority(ageing=ageing, preempt_difference=0),
        page_size=page_size,
        total_slots=64,
        max_running_requests=places,
        max_prefill_tokens=budget,
        schedule_conservativeness=conservativeness,
        max_skips=10,
    )
    loop = NormalLoop(run.scheduler) if depth == 1 else OverlapLoop(run.scheduler, depth)
    asked = {}
    for i, (length, new, priority, turns) in enumerate(arrivals):
        asked[run.submit(prompt(i, length), max_new_tokens=new, priority=priority)] = new
        for _ in range(turns):
            loop.step()
            run.scheduler.check_invariants()
    for _ in range(3000):
        loop.step()
        run.collect()
        run.scheduler.check_invariants()
        state = run.scheduler.state()
        if len(run.answers) == len(asked) and not (state.running or state.waiting or state.in_flight):
            break
    for rid, new in asked.items():
        assert run.answers[rid].ids == run.expected(rid, new)
    run.assert_at_rest()
