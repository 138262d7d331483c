"""Who gets in, and when: memory, places, the step's tokens, hold-back of twins, and the bound on waiting. B30, B36."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from jackfield.hookspecs import (
    HOLD,
    Chosen,
    DecodeTurn,
    RequestTable,
    SchedulePolicy,
    SchedulerView,
    StepBudget,
    Want,
)
from jackfield.managers.requests.capacity import CapacityError, check_capacity
from jackfield.testing.page_cache import NoSharingCache
from jackfield.testing.scheduler_harness import ArrivalOrder, SchedulerHarness


def test_b30_prompts_at_the_context_edge() -> None:
    run = SchedulerHarness(context_length=32)
    for length in (31, 32, 33):
        run.submit([5] * length, rid=f"{length}", max_new_tokens=50)
    run.run()
    assert run.answers["31"].ids == run.expected("31", 2)
    assert run.answers["32"].ids == run.expected("32", 1)
    refused = run.answers["33"].last.finish
    assert refused is not None
    assert (refused.type, refused.status_code, refused.err_type) == ("abort", 400, "context_length_exceeded")
    run.assert_at_rest()


def test_b36_a_prompt_that_never_fits_is_refused_and_blocks_nobody() -> None:
    run = SchedulerHarness(context_length=8192, total_slots=512, max_tokens=8192)
    run.submit([i % 900 for i in range(600)], rid="huge", max_new_tokens=4)
    run.submit([1, 2, 3], rid="short", max_new_tokens=4)
    run.submit([i % 900 for i in range(510)], rid="just", max_new_tokens=400)
    run.run()
    refused = run.answers["huge"].last.finish
    assert refused is not None
    assert refused.status_code == 400
    assert "512" in (refused.message or "")
    assert run.answers["short"].ids == run.expected("short", 4)
    assert run.answers["just"].ids == run.expected("just", 3)  # clamped to what the pool holds
    run.assert_at_rest()


@pytest.mark.parametrize("bad", [[-1], [1000], [1, 2, 2**70]])
def test_an_id_outside_the_vocabulary_is_refused(bad: list[int]) -> None:
    run = SchedulerHarness()
    if bad[-1] < 2**63:
        rid = run.submit(bad)
        run.run()
        finish = run.answers[rid].last.finish
        assert finish is not None
        assert (finish.type, finish.status_code) == ("abort", 400)
        assert str(bad[-1]) in (finish.message or "")
    else:  # msgpack itself has no such number
        with pytest.raises(OverflowError):
            run.submit(bad)


def test_b22_an_empty_prompt_ends_with_a_reason() -> None:
    run = SchedulerHarness()
    rid = run.submit([])
    run.run()
    finish = run.answers[rid].last.finish
    assert finish is not None
    assert finish.status_code == 400
    assert "empty" in (finish.message or "")


def test_the_queue_has_an_end_and_says_so() -> None:
    run = SchedulerHarness(max_queued_requests=2, max_running_requests=1)
    rids = [run.submit([i], max_new_tokens=2) for i in range(5)]  # one runs, two wait
    run.run()
    finishes = [run.answers[rid].last.finish for rid in rids]
    assert [finish.type for finish in finishes] == ["length"] * 3 + ["abort"] * 2  # type: ignore[union-attr]
    assert (finishes[3].status_code, finishes[3].err_type) == (503, "queue_full")  # type: ignore[union-attr]
    assert "2 requests wait" in (finishes[3].message or "")  # type: ignore[union-attr]


def test_who_waits_for_memory_beside_free_places_counts_in_the_queue() -> None:
    run = SchedulerHarness(max_queued_requests=2, max_running_requests=8, total_slots=16, page_size=4)
    run.submit([1] * 10, max_new_tokens=6)
    run.turn()  # it runs, and nobody else fits
    first = [run.submit([2 + i] * 10, max_new_tokens=6) for i in range(2)]
    run.turn()
    late = run.submit([9], max_new_tokens=2)
    run.run()
    assert [run.answers[rid].last.finish.type for rid in (*first, late)] == ["length", "length", "abort"]  # type: ignore[union-attr]


def test_a_conservative_scheduler_reserves_the_worst_case_so_that_decode_never_runs_out() -> None:
    run = SchedulerHarness(total_slots=40, page_size=4, cache=NoSharingCache(4), schedule_conservativeness=11)
    first = run.submit([1] * 10, max_new_tokens=11)  # 20 slots
    second = run.submit([2] * 10, max_new_tokens=12)  # 24 slots with its page rounded: must wait
    third = run.submit([3], max_new_tokens=2)  # would fit, but nobody takes memory from under the head of the queue
    run.turn()
    assert (run.scheduler.state().running, run.scheduler.state().waiting) == (1, 2)
    run.run()
    assert run.scheduler.state().retractions == 0
    for rid, count in ((first, 11), (second, 12), (third, 2)):
        assert run.answers[rid].ids == run.expected(rid, count)
    run.assert_at_rest()


def test_cached_prefixes_give_way_to_running_requests() -> None:
    run = SchedulerHarness(total_slots=32)
    run.submit(list(range(30)), max_new_tokens=3)
    run.run()
    assert run.scheduler.state().evictable == 32
    rid = run.submit(list(range(500, 525)), max_new_tokens=8)
    run.run()
    assert run.answers[rid].ids == run.expected(rid, 8)
    run.assert_at_rest()


@settings(max_examples=40, deadline=None)
@given(
    pages=st.integers(8, 24),
    page_size=st.sampled_from([1, 4]),
    conservativeness=st.sampled_from([0.1, 1.0, 11.0]),
    requests=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40), st.booleans()), min_size=1, max_size=10),
)
def test_everybody_ends_whatever_is_reserved(
    pages: int, page_size: int, conservativeness: float, requests: list[tuple[int, int, bool]]
) -> None:
    """Where the worst case is reserved, the invariant check of every step compares what is promised with what is there."""
    run = SchedulerHarness(
        total_slots=pages * page_size,
        page_size=page_size,
        max_prefill_tokens=16,
        schedule_conservativeness=conservativeness,
    )
    for i, (length, new, shared) in enumerate(requests):
        run.submit([0 if shared else i + 1, *range(length)][:length], max_new_tokens=new)
    run.run()
    assert len(run.answers) == len(requests)
    for rid, answer in run.answers.items():
        assert answer.finish is not None
        if answer.finish.type == "length":
            assert answer.ids == run.expected(rid, answer.finish.length or 0)
    if conservativeness > 10.3:
        assert run.scheduler.state().retractions == 0
    run.assert_at_rest()


@settings(max_examples=60, deadline=None)
@given(
    pages=st.integers(1, 6),
    page_size=st.sampled_from([1, 4, 16, 64]),
    prompt=st.integers(1, 400),
    new=st.integers(0, 400),
    chunk=st.sampled_from([None, -1, 64]),
    conservativeness=st.sampled_from([0.01, 1.0, 11.0]),
)
def test_r18_whatever_is_admitted_can_run_alone_in_an_empty_pool(
    pages: int, page_size: int, prompt: int, new: int, chunk: int | None, conservativeness: float
) -> None:
    """The one capacity function grants exactly what the scheduler then gives, and is never contradicted by a retraction."""
    total = pages * page_size
    run = SchedulerHarness(
        total_slots=total,
        page_size=page_size,
        context_length=256,
        max_prefill_tokens=64,
        chunked_prefill_size=chunk,
        schedule_conservativeness=conservativeness,
    )
    rid = run.submit([(7 * i) % 900 for i in range(prompt)], max_new_tokens=new)
    run.run()
    finish = run.answers[rid].finish
    assert finish is not None
    limits: dict[str, int] = {"context_length": 256, "total_slots": total, "page_size": page_size}
    if finish.type == "abort":
        with pytest.raises(CapacityError) as refused:
            check_capacity(prompt, new, **limits)
        assert (finish.status_code, finish.message) == (400, refused.value.message)
        return
    granted = check_capacity(prompt, new, **limits)
    assert (finish.type, finish.length) == ("length", granted)
    assert run.answers[rid].ids == run.expected(rid, granted)
    assert run.scheduler.state().retractions == 0
    run.assert_at_rest()


# ---- the step's tokens


@pytest.mark.parametrize("budget", [1, 5, 16])
def test_long_prompts_run_in_chunks_within_the_budget_and_say_nothing_between(budget: int) -> None:
    run = SchedulerHarness(max_prefill_tokens=budget)
    rid = run.submit(list(range(40)), max_new_tokens=3)
    run.run()
    prefills = [batch for batch in run.worker.batches if batch.new_tokens[0] > 1 or not batch.sample[0]]
    assert all(batch.new_tokens.sum() <= budget for batch in prefills)
    assert len(run.answers[rid].entries) == 3
    assert run.answers[rid].ids == run.expected(rid, 3)


def test_the_workers_own_limit_holds_too() -> None:
    run = SchedulerHarness(max_tokens=8, max_prefill_tokens=100)
    for i in range(3):
        run.submit([i] * 20, max_new_tokens=2)
    run.run()  # the fake worker refuses a batch of more than 8 tokens
    run.assert_at_rest()


class Budgeted(SchedulePolicy):
    def __init__(self, budget: StepBudget) -> None:
        self.answer = budget

    def budget(self, view: SchedulerView) -> StepBudget:
        return self.answer

    def order(self, waiting: RequestTable, view: SchedulerView) -> None:
        return None


def new_tokens(run: SchedulerHarness, step: int) -> list[int]:
    return list(run.worker.batches[step].new_tokens.tolist())


@pytest.mark.parametrize(
    ("turn", "second", "third"),
    [(DecodeTurn.AFTER, [6], [1, 1]), (DecodeTurn.FIRST, [1], [1]), (DecodeTurn.MIX, [6, 1], [1, 1])],
)
def test_where_decodes_stand_against_prefills(turn: DecodeTurn, second: list[int], third: list[int]) -> None:
    run = SchedulerHarness(policy=Budgeted(StepBudget(decode=turn)))
    first = run.submit([1] * 4, max_new_tokens=5)
    run.turn()
    other = run.submit([2] * 6, max_new_tokens=5)
    run.turn()
    run.turn()
    assert new_tokens(run, 0) == [4]
    assert new_tokens(run, 1) == second
    assert new_tokens(run, 2) == third
    run.run()
    assert run.answers[first].ids == run.expected(first, 5)
    assert run.answers[other].ids == run.expected(other, 5)


def test_a_mixed_batch_counts_decodes_against_the_workers_limit() -> None:
    run = SchedulerHarness(policy=Budgeted(StepBudget(decode=DecodeTurn.MIX)), max_tokens=8)
    run.submit([1] * 4, max_new_tokens=20)
    run.turn()
    run.submit([2] * 30, max_new_tokens=3)
    run.turn()
    assert new_tokens(run, 1) == [7, 1]


@pytest.mark.parametrize(("partial", "step_one"), [(0, [6]), (1, [6, 4]), (2, [6, 4])])
def test_how_many_prompts_may_be_cut(partial: int, step_one: list[int]) -> None:
    run = SchedulerHarness(policy=Budgeted(StepBudget(prefill_tokens=10, partial_prefills=partial)))
    run.submit([1] * 6, max_new_tokens=1)
    run.submit([2] * 6, max_new_tokens=1)
    run.turn()
    assert new_tokens(run, 0) == step_one
    run.run()
    run.assert_at_rest()


def test_a_prompt_longer_than_the_budget_is_cut_even_if_the_policy_allows_none() -> None:
    run = SchedulerHarness(policy=Budgeted(StepBudget(prefill_tokens=4, partial_prefills=0)))
    rid = run.submit(list(range(10)), max_new_tokens=1)
    run.run()
    assert run.answers[rid].ids == run.expected(rid, 1)


@pytest.mark.parametrize(("want", "expected"), [(Want.PREFILL, [3]), (Want.DECODE, [1]), (Want.ANY, [3])])
def test_a_loop_may_ask_for_one_kind_of_work(want: Want, expected: list[int]) -> None:
    run = SchedulerHarness()
    run.submit([1, 2], max_new_tokens=5)
    run.turn()
    run.submit([3, 4, 5], max_new_tokens=5)
    run.scheduler.ingest()
    batch = run.scheduler.next_batch(want)
    assert batch is not None
    assert batch.new_tokens.tolist() == expected
    assert SchedulerHarness().scheduler.next_batch(want) is None


# ---- twins


def computed_prompt_tokens(run: SchedulerHarness) -> int:
    return sum(int(batch.new_tokens[batch.new_tokens > 1].sum()) for batch in run.worker.batches)


@pytest.mark.parametrize("budget", [16, 4096])
def test_a_twin_waits_for_the_first_ones_prefill_and_reuses_it(budget: int) -> None:
    run = SchedulerHarness(max_prefill_tokens=budget, hold_back_tokens=8)
    shared = list(range(60))
    rids = [run.submit([*shared, 900 + i, 901 + i], max_new_tokens=2) for i in range(4)]
    other = run.submit([5, 6], max_new_tokens=2)
    run.run()
    assert [run.answers[rid].last.cached_tokens for rid in rids] == [0, 60, 60, 60]
    assert computed_prompt_tokens(run) == 62 + 3 * 2 + 2
    for rid in (*rids, other):
        assert run.answers[rid].ids == run.expected(rid, 2)
    # Whoever is no twin does not wait for it.
    if budget > 100:
        assert run.worker.batches[0].new_tokens.tolist() == [62, 2]


def test_twins_do_not_wait_where_nothing_is_shared() -> None:
    run = SchedulerHarness(hold_back_tokens=8, cache=NoSharingCache(1))
    for _ in range(2):  # the first round teaches it that this cache keeps nothing
        for _ in range(3):
            run.submit(list(range(30)), max_new_tokens=1)
        run.run()
    assert run.worker.batches[-1].new_tokens.tolist() == [30, 30, 30]


def test_a_twin_goes_on_when_the_first_is_aborted() -> None:
    run = SchedulerHarness(max_prefill_tokens=8, hold_back_tokens=8)
    run.submit(list(range(60)), rid="a", max_new_tokens=2)
    run.submit(list(range(60)), rid="b", max_new_tokens=2)
    run.turn()
    run.abort("a")
    run.turn()
    assert run.scheduler.state().running == 1
    run.run()
    assert run.answers["b"].ids == run.expected("b", 2)
    assert run.answers["b"].last.cached_tokens == 8
    run.assert_at_rest()


def test_hold_back_can_be_switched_off() -> None:
    run = SchedulerHarness(hold_back_tokens=0)
    for _ in range(2):
        run.submit(list(range(60)), max_new_tokens=1)
    run.run()
    assert run.worker.batches[0].new_tokens.tolist() == [60, 60]
    run.assert_at_rest()  # the second one's duplicates were freed


# ---- nobody waits for ever


class Selfish(SchedulePolicy):
    """Newest first; or says that nobody should run; or passes everybody over; or holds."""

    def __init__(self, how: str) -> None:
        self.how = how

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        return np.empty(0, dtype=np.intp) if self.how == "nobody" else np.arange(len(waiting))[::-1]

    def take(self, row: int, most: int, waiting: RequestTable, chosen: Chosen, view: SchedulerView) -> int:
        return {"newest": most, "nobody": most, "none": 0, "hold": HOLD}[self.how]


@pytest.mark.parametrize("how", ["newest", "nobody", "none", "hold"])
def test_max_skips_bounds_the_wait_under_any_policy(how: str) -> None:
    run = SchedulerHarness(policy=Selfish(how), max_skips=10, max_running_requests=1)
    old = run.submit([1, 2, 3], rid="old", max_new_tokens=1)
    for i in range(40):
        run.submit([500 + i], max_new_tokens=1)
        run.turn()
        if old in run.answers and run.answers[old].finish:
            break
    assert run.answers[old].ids == run.expected(old, 1)
    assert i <= 12
    run.run()


def test_a_policy_that_runs_at_once_is_not_slowed_down() -> None:
    run = SchedulerHarness(policy=Selfish("newest"), max_running_requests=1)
    for i in range(3):
        run.submit([i], rid=f"{i}", max_new_tokens=1)
    admitted = []
    for _ in range(3):
        run.turn()
        admitted += [opened.history[0] for opened in run.worker.batches[-1].opened]
    assert admitted == [2, 1, 0]


class Sliced(ArrivalOrder):
    def take(self, row: int, most: int, waiting: RequestTable, chosen: Chosen, view: SchedulerView) -> int:
        assert chosen.tokens.sum() + most <= view.max_prefill
        return min(most, 4)


def test_a_policy_may_give_a_request_only_a_slice() -> None:
    run = SchedulerHarness(policy=Sliced())
    rid = run.submit(list(range(20)), max_new_tokens=2)
    run.turn()
    assert new_tokens(run, 0) == [4]
    run.run()
    assert run.answers[rid].ids == run.expected(rid, 2)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"context_length": 0}, "context_length"),
        ({"max_queued_requests": 0}, "max_queued_requests"),
        ({"eos_token_ids": (1000,)}, "eos_token_ids"),
        ({"max_running_requests": 5, "max_tokens": 4}, "max_running_requests 5 exceeds"),
    ],
)
def test_limits_that_contradict_each_other_stop_the_start(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SchedulerHarness(**limits)
