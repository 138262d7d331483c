"""Running requests go back into the queue when decode needs their memory, and nobody outside notices but by the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from jackfield.hookspecs import (
    Amounts,
    Chosen,
    DecodeTurn,
    EventLoop,
    PrefixCache,
    RequestTable,
    SchedulerView,
    StepBudget,
    StepOutcome,
    StepRecord,
)
from jackfield.ipc.messages import StopRequest
from jackfield.testing.page_cache import NoSharingCache, PageCache
from jackfield.testing.scheduler_harness import ArrivalOrder, SchedulerHarness
from jackfield_cache_prefix.chunk_cache import ChunkCache
from jackfield_cache_prefix.radix_cache import RadixCache
from jackfield_scheduler_loops.normal import NormalLoop
from jackfield_scheduler_loops.overlap import OverlapLoop

CACHES: dict[str, Callable[[int], PrefixCache]] = {
    "page": PageCache,
    "none": NoSharingCache,
    "radix": lambda page_size: RadixCache(page_size=page_size),
    "chunk": lambda page_size: ChunkCache(page_size=page_size),
}

EAGER: dict[str, Any] = {"schedule_conservativeness": 0.01}
"""Reserves next to nothing: whoever's prompt fits gets in."""


class Recorder(ArrivalOrder):
    """Keeps every step's record."""

    def __init__(self) -> None:
        self.records: list[StepRecord] = []

    def observe(self, record: StepRecord) -> None:
        self.records.append(record)


def prompt(seed: int, length: int) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(0, 1000, length).tolist()
    return ids


def finish(run: SchedulerHarness, loop: EventLoop) -> int:
    """Turn until nothing is open. Returns the turns in which nothing ran."""
    idle = 0
    for _ in range(5000):
        outcome = loop.step()
        run.collect()
        run.scheduler.check_invariants()
        state = run.scheduler.state()
        if not (state.running or state.waiting or state.in_flight):
            return idle
        idle += outcome is StepOutcome.IDLE
    raise AssertionError(f"it does not end: {run.scheduler.state()}")


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("chunk", [16384, 48])
def test_b40_retracted_requests_go_on_where_they_were(cache: str, page_size: int, depth: int, chunk: int) -> None:
    """Four requests of (60, 120) in a pool for little more than two: the same tokens as alone, no gap, no repeat, every loop
    goes on without a turn in which nothing runs."""
    run = SchedulerHarness(
        cache=CACHES[cache](page_size),
        page_size=page_size,
        total_slots=448,
        context_length=256,
        max_prefill_tokens=chunk,
        **EAGER,
    )
    rids = [run.submit(prompt(i, 60), max_new_tokens=120) for i in range(4)]
    loop = NormalLoop(run.scheduler) if depth == 1 else OverlapLoop(run.scheduler, depth)
    assert finish(run, loop) == 0
    assert run.scheduler.state().retractions > 0
    assert sum(run.answers[rid].last.retractions for rid in rids) == run.scheduler.state().retractions
    for rid in rids:
        answer = run.answers[rid]
        assert answer.ids == run.expected(rid, 120)
        assert [len(entry.ids) for entry in answer.entries] == [1] * 120
        assert answer.last.cached_tokens == 0  # of the first admission, not of the return
        assert answer.finish is not None
        assert answer.finish.type == "length"
    run.assert_at_rest()


def in_a_pool_for_one_and_a_half(**settings: Any) -> tuple[SchedulerHarness, str, str]:
    """Two requests of which the second is retracted half-way, right after the returned harness' last turn."""
    run = SchedulerHarness(total_slots=60, context_length=64, **{**EAGER, **settings})
    old, new = run.submit(prompt(1, 20), max_new_tokens=40), run.submit(prompt(2, 20), max_new_tokens=40)
    for _ in range(60):
        run.turn()
        if run.scheduler.state().retractions:
            break
    assert (run.scheduler.state().running, run.scheduler.state().waiting) == (1, 1)
    return run, old, new


def test_the_newest_goes_and_what_it_wrote_is_not_computed_again_while_the_cache_has_it() -> None:
    run, old, new = in_a_pool_for_one_and_a_half()
    run.abort(old)
    before = len(run.worker.batches)
    run.run()
    assert run.answers[new].ids == run.expected(new, 40)
    assert run.answers[new].last.retractions == 1
    # only the token that was sampled last, and what the old one's last steps had evicted
    assert int(run.worker.batches[before].new_tokens[0]) < 20
    run.assert_at_rest()


def test_a_retracted_request_can_be_aborted_while_it_waits() -> None:
    run, old, new = in_a_pool_for_one_and_a_half()
    had = len(run.answers[new].ids)
    run.abort(new)
    run.run()
    answer = run.answers[new]
    assert answer.finish is not None
    assert answer.finish.type == "abort"
    assert answer.ids == run.expected(new, 40)[:had]
    assert answer.last.retractions == 1
    assert run.answers[old].ids == run.expected(old, 40)
    run.assert_at_rest()


def test_a_retracted_request_can_be_stopped_while_it_waits() -> None:
    run, _, new = in_a_pool_for_one_and_a_half()
    run.inbox.send(StopRequest(rid=new))
    run.run()
    finish = run.answers[new].finish
    assert finish is not None
    assert finish.type == "stop"
    run.assert_at_rest()


def test_a_retracted_request_can_be_aborted_after_its_return() -> None:
    run, old, new = in_a_pool_for_one_and_a_half()
    run.abort(old)
    run.turn()
    assert (run.scheduler.state().running, run.scheduler.state().waiting) == (1, 0)
    run.abort(new)
    run.run()
    assert run.answers[new].ids == run.expected(new, 40)[: len(run.answers[new].ids)]
    run.assert_at_rest()


def test_it_waits_at_its_place_by_arrival_with_its_age() -> None:
    run, old, new = in_a_pool_for_one_and_a_half(max_running_requests=2)
    late = run.submit(prompt(3, 5), max_new_tokens=40)
    run.turn()
    table = run.scheduler._waiting.table
    assert [request.rid for request in table["request"]] == [new, late]
    assert table["retractions"].tolist() == [1, 0]
    assert table["output_tokens"].tolist() == [len(run.answers[new].ids), 0]
    run.run()
    assert [list(run.answers[rid].ids) for rid in (old, new, late)] == [
        run.expected(rid, 40) for rid in (old, new, late)
    ]


def test_the_records_tell_who_was_retracted() -> None:
    policy = Recorder()
    run, _, _ = in_a_pool_for_one_and_a_half(policy=policy)
    run.run()
    retracted = [uid for record in policy.records for uid in record.retracted]
    assert retracted == [2]
    (at,) = [i for i, record in enumerate(policy.records) if record.retracted]
    assert 2 not in policy.records[at].uids.tolist()
    assert [record.admitted for record in policy.records if 2 in record.admitted] == [(1, 2), (2,)]


def test_the_life_of_a_request_tells_of_it() -> None:
    run, _, new = in_a_pool_for_one_and_a_half()
    run.run()
    (life,) = run.scheduler.why(new)["requests"]
    events = [event["event"] for event in life["events"] if event["event"] in ("admitted", "retracted", "ended")]
    assert events == ["admitted", "retracted", "admitted", "ended"]


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def listens(self, hook_name: str) -> bool:
        return hook_name == "jackfield_requests_retracted"

    def notify(self, hook_name: str, **arguments: Any) -> None:
        self.heard.append((hook_name, arguments))


def test_observers_hear_of_it_and_reports_count_it() -> None:
    listener = Listener()
    run, _, _ = in_a_pool_for_one_and_a_half(observers=listener, report_interval=0.0)
    run.run()
    assert listener.heard == [("jackfield_requests_retracted", {"uids": (2,)})]
    assert sum(report.retracted_requests for report in run.reports) == run.scheduler.state().retractions == 1


class Chooses(ArrivalOrder):
    """The oldest goes first; or what a test says."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.asked: list[tuple[int, int | None]] = []

    def victims(
        self, running: RequestTable, need: Amounts, for_row: int | None, view: SchedulerView
    ) -> NDArray[np.intp]:
        self.asked.append((need.slots, for_row))
        if isinstance(self.answer, Exception):
            raise self.answer
        rows: NDArray[np.intp] = np.arange(len(running)) if self.answer is None else self.answer
        return rows


def test_the_policy_chooses_and_one_request_always_stays() -> None:
    policy = Chooses()
    run, old, new = in_a_pool_for_one_and_a_half(policy=policy)
    assert policy.asked == [(1, None)] or policy.asked == [(2, None)]
    assert [request.rid for request in run.scheduler._running["request"]] == [new]
    run.run()
    assert run.answers[old].ids == run.expected(old, 40)
    assert run.answers[old].last.retractions >= 1


class CountingLedger:
    def __init__(self) -> None:
        self.faults: list[str] = []

    def record(self, plugin: str, scope: Any, error: BaseException) -> None:
        self.faults.append(f"{scope.value}: {error}")


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (RuntimeError("no idea"), "degrade: no idea"),
        (np.array([0, 0]), "degrade: victims returned a row twice"),
        (np.array([7]), "degrade: victims returned rows 7 .. 7 of a table of 2"),
        (np.array([0.5]), "degrade: victims returned 1 dimensions of float64; one of integers is allowed"),
        (np.array([], dtype=np.intp), None),
    ],
)
def test_a_policy_that_fails_at_it_leaves_the_choice_to_the_core(answer: Any, fault: str | None) -> None:
    ledger = CountingLedger()
    run, old, _ = in_a_pool_for_one_and_a_half(policy=Chooses(answer), ledger=ledger)
    assert ledger.faults == ([] if fault is None else [fault])
    assert [request.rid for request in run.scheduler._running["request"]] == [old]
    run.run()
    run.assert_at_rest()


@settings(max_examples=60, deadline=None)
@given(
    page_size=st.sampled_from([1, 4]),
    depth=st.integers(1, 3),
    cache=st.sampled_from(sorted(CACHES)),
    budget=st.sampled_from([4, 16, 1000]),
    requests=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40), st.booleans()), min_size=2, max_size=10),
    seed=st.integers(0, 5),
)
def test_whatever_is_retracted_everybody_gets_the_tokens_that_are_theirs(
    page_size: int, depth: int, cache: str, budget: int, requests: list[tuple[int, int, bool]], seed: int
) -> None:
    run = SchedulerHarness(
        cache=CACHES[cache](page_size),
        page_size=page_size,
        total_slots=64,
        max_prefill_tokens=budget,
        hold_back_tokens=4,
        **EAGER,
    )
    asked = {}
    for i, (length, new, shared) in enumerate(requests):
        ids = [7, *range(length - 1)] if shared else prompt(1 + i + 100 * seed, length)
        asked[run.submit(ids, max_new_tokens=new)] = min(new, 64 - length + 1)
    finish(run, OverlapLoop(run.scheduler, depth))
    for rid, new in asked.items():
        assert run.answers[rid].ids == run.expected(rid, new)
    run.assert_at_rest()


class LongLast(ArrivalOrder):
    """Lets short prompts decode until nothing is free; the long ones have one token each by then, and are its victims."""

    def budget(self, view: SchedulerView) -> StepBudget:
        return StepBudget(
            decode=DecodeTurn.FIRST if view.step > 1 and view.free else DecodeTurn.AFTER,
            partial_prefills=8,
            prefill_tokens=100 if view.step == 1 else 4,
        )

    def take(self, row: int, most: int, waiting: RequestTable, chosen: Chosen, view: SchedulerView) -> int:
        return most if waiting.prompt_tokens[row] < 5 or view.step > 1 else 1

    def victims(
        self, running: RequestTable, need: Amounts, for_row: int | None, view: SchedulerView
    ) -> NDArray[np.intp]:
        return np.flatnonzero(running.prompt_tokens >= 5)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_retraction_that_lets_the_next_prompt_lack_memory_is_followed_by_the_next(depth: int) -> None:
    """Each victim held less than the one behind it wants now that it is first: a step retracts until what is left fits."""
    run = SchedulerHarness(policy=LongLast(), total_slots=64, hold_back_tokens=0, **EAGER)
    short = run.submit([1, 2], max_new_tokens=62)
    long = [run.submit(prompt(i, 10), max_new_tokens=2) for i in range(4)]
    finish(run, NormalLoop(run.scheduler) if depth == 1 else OverlapLoop(run.scheduler, depth))
    assert run.answers[short].ids == run.expected(short, 62)
    for rid in long:
        assert run.answers[rid].ids == run.expected(rid, 2)
    assert run.scheduler.state().retractions >= 3
    run.assert_at_rest()
