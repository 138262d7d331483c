"""Nothing waits for ever: the sentences about liveness, each as a test of its own. The machine in `test_scheduler_machine`
checks their general form after every step."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jackfield.hookspecs import (
    Amounts,
    EventLoop,
    PolicyContext,
    RequestTable,
    SchedulePolicy,
    SchedulerView,
)
from jackfield.ipc.messages import AbortRequest, StopRequest
from jackfield.testing.scheduler_harness import ArrivalOrder, SchedulerHarness
from jackfield_cache_prefix.radix_cache import RadixCache
from jackfield_scheduler_loops.normal import NormalLoop
from jackfield_scheduler_loops.overlap import OverlapLoop
from tests.unit.scheduler.machine_setup import POLICIES


def make_loop(run: SchedulerHarness, depth: int) -> EventLoop:
    return NormalLoop(run.scheduler) if depth == 1 else OverlapLoop(run.scheduler, depth)


def make_policy(name: str) -> SchedulePolicy:
    (found,) = entry_points(group="jackfield.schedule_policy", name=name)
    context = PolicyContext(
        kind="schedule_policy", name=name, instance=name, max_running=4, page_size=1, total_slots=256
    )
    policy: SchedulePolicy = found.load().jackfield_schedule_policy(context)
    return policy


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("how", ["length", "abort", "stop", "timeout"])
def test_nobody_waits_behind_a_batch_that_only_looks_full(how: str, depth: int) -> None:
    """A place that comes free, however that happens, is taken in the next step that is decided: at most `depth` turns later."""
    run = SchedulerHarness(
        max_running_requests=3,
        total_slots=1024,
        request_running_timeout=20.0 if how == "timeout" else None,
    )
    loop = make_loop(run, depth)
    long = how != "length"
    rids = [run.submit([i + 1] * 3, max_new_tokens=90 if long else 3 + i % 4, ignore_eos=True) for i in range(12)]
    short = 0
    for turn in range(3000):
        loop.step()
        run.collect()
        run.clock.advance(1.0)
        state = run.scheduler.state()
        if not state.running and not state.waiting:
            break
        short = short + 1 if state.waiting and state.running < 3 else 0
        assert short <= depth, f"turn {turn}: {state.running} run, {state.waiting} wait"
        if how in ("abort", "stop") and turn % 5 == 4:
            rid = next(rid for rid in rids if run.answers[rid].finish is None)
            run.inbox.send(AbortRequest(rid=rid) if how == "abort" else StopRequest(rid=rid))
    else:
        raise AssertionError("it does not end")
    loop.settle()
    finishes = [run.answers[rid].finish for rid in rids]
    assert {finish.type for finish in finishes if finish} == {"abort" if how == "timeout" else how}
    run.assert_at_rest()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("page_size", [1, 4, 16, 64])
@pytest.mark.parametrize("chunk", [None, -1])
def test_a_prompt_that_equals_the_pool_runs(chunk: int | None, page_size: int, depth: int) -> None:
    """In a pool whose cache is full of others, while somebody runs, and when all of it is cached already."""
    run = SchedulerHarness(
        cache=RadixCache(page_size),
        page_size=page_size,
        total_slots=64,
        chunked_prefill_size=chunk,
        max_prefill_tokens=16 if chunk is None else 64,
    )
    loop = make_loop(run, depth)
    run.submit([9] * 40, max_new_tokens=10, ignore_eos=True)
    for _ in range(5):
        loop.step()
    whole = [run.submit(list(range(100, 164)), max_new_tokens=5, ignore_eos=True) for _ in range(2)]
    behind = run.submit([7] * 5, max_new_tokens=3, ignore_eos=True)
    for _ in range(100):
        loop.step()
        run.collect()
    for rid in whole:
        assert run.answers[rid].ids == run.expected(rid, 1)  # the pool has no slot for the KV of more
    assert run.answers[behind].ids == run.expected(behind, 3)
    run.assert_at_rest()


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("new", [0, 1, 5])
def test_no_extend_has_length_zero(new: int, page_size: int) -> None:
    """A prompt that is in the cache to its last token, alone, among others and where the budget is used up to the last token:
    every row of every batch computes something, and no batch is empty."""
    run = SchedulerHarness(
        cache=RadixCache(page_size), page_size=page_size, max_prefill_tokens=16, max_running_requests=4
    )
    prompt = list(range(100, 132))
    for count in (1, 1, 3):
        rids = [run.submit(prompt, max_new_tokens=new, ignore_eos=True) for _ in range(count)]
        rids += [run.submit(prompt[:16], max_new_tokens=new, ignore_eos=True) for _ in range(count)]
        run.run()
        for rid in rids:
            assert run.answers[rid].ids == run.expected(rid, new)
    assert all(len(batch.rows) and batch.new_tokens.min() >= 1 for batch in run.worker.batches)
    assert run.answers[rids[0]].last.cached_tokens == 32 - page_size
    run.assert_at_rest()


class Greedy(ArrivalOrder):
    """Would take from everybody, for everybody."""

    def victims(
        self, running: RequestTable, need: Amounts, for_row: int | None, view: SchedulerView
    ) -> NDArray[np.intp]:
        return np.random.default_rng(view.seed).permutation(len(running))


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("policy", ["priority", "eager"])
def test_equals_do_not_take_turns_in_retracting_each_other(policy: str, depth: int) -> None:
    """Two requests, each of which needs nearly the whole pool in the end, and more of their kind behind them: nobody is ever
    retracted for a waiting one, and all is done in less than twice the steps that they take one behind the other."""
    run = SchedulerHarness(
        cache=RadixCache(1),
        policy=make_policy("priority") if policy == "priority" else Greedy(),
        total_slots=64,
        schedule_conservativeness=0.01,
        max_skips=4,
    )
    loop = make_loop(run, depth)
    rids = [run.submit([i + 1] * 20, max_new_tokens=40, ignore_eos=True, priority=5) for i in range(4)]
    alone = len(rids) * (1 + 40)
    while run.scheduler.state().steps < 2 * alone:
        loop.step()
        run.collect()
        state = run.scheduler.state()
        if not (state.running or state.waiting or state.in_flight):
            break
    assert run.scheduler.state().retractions > 0
    for rid in rids:
        assert run.answers[rid].ids == run.expected(rid, 40)
        (life,) = run.scheduler.why(rid)["requests"]
        assert not any(event.get("for_uid") for event in life["events"])
    run.assert_at_rest()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("policy", POLICIES)
def test_prompts_without_end_never_stop_a_stream_for_longer_than_the_bound(policy: str, most: int, depth: int) -> None:
    """Between two tokens of a running request there are at most --max-consecutive-prefills steps of prompts, under every
    policy, whatever comes in."""
    settings: dict[str, Any] = {"max_running_requests": 4, "max_prefill_tokens": 8, "max_consecutive_prefills": most}
    run = SchedulerHarness(
        cache=RadixCache(1),
        policy=make_policy(policy),
        policy_needs=frozenset(POLICIES[policy]),
        total_slots=512,
        **settings,
    )
    loop = make_loop(run, depth)
    stream = run.submit([1, 2, 3], max_new_tokens=30, ignore_eos=True)
    turns = 0
    while stream not in run.answers or run.answers[stream].finish is None:
        run.submit([turns % 50 + 4] * 24, max_new_tokens=1, ignore_eos=True, priority=9, tenant="other")
        loop.step()
        run.collect()
        turns += 1
        assert turns < 1000
    steps = steps_of(run, uid=1)
    gaps = np.diff(steps)
    assert len(steps) >= 30
    assert gaps.max() <= most + 1
    assert gaps.max() > 1 or policy == "token-budget", "nothing ever stood in its way"
    assert run.answers[stream].ids == run.expected(stream, 30)


def steps_of(run: SchedulerHarness, uid: int) -> list[int]:
    """Numbers of the batches that had this request in them, by the worker's own book of rows."""
    holders: dict[int, int] = {}
    steps = []
    for number, batch in enumerate(run.worker.batches):
        holders.update((opened.row, opened.uid) for opened in batch.opened)
        if uid in [holders[row] for row in batch.rows.tolist()]:
            steps.append(number)
    return steps


class Nobody(ArrivalOrder):
    """Lets nobody run; seen: how often each who waits was passed over, at every look."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def order(self, waiting: RequestTable, view: SchedulerView) -> Any:
        self.seen.append(waiting.skips.tolist())
        return np.empty(0, dtype=np.intp)


def test_who_goes_first_is_not_passed_over_any_more() -> None:
    """Not by a policy that leaves it out either, however long it waits for memory."""
    policy = Nobody()
    run = SchedulerHarness(policy=policy, total_slots=64, max_skips=3, schedule_conservativeness=11.0)
    rids = [run.submit([i + 1] * 20, max_new_tokens=40, ignore_eos=True) for i in range(2)]
    run.run()
    for rid in rids:
        assert run.answers[rid].ids == run.expected(rid, 40)
    assert max(max(skips) for skips in policy.seen) == 3
    assert len(policy.seen) > 30
