"""A request's way through the scheduler: how it ends, what its last entry says, what it may reuse."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import RowOpen, WorkerLimits, tenant_code
from jackfield.managers.scheduler.request import cache_namespace
from jackfield.testing.page_cache import NoSharingCache
from jackfield.testing.scheduler_fakes import FakeWorker
from jackfield.testing.scheduler_harness import SchedulerHarness


def scripted(tokens: list[int], **settings: Any) -> SchedulerHarness:
    """A worker that emits these tokens for every request, whatever its prompt."""
    limits = WorkerLimits(max_rows=9, max_context=128, total_slots=256, page_size=1, vocab_size=1000, max_tokens=4096)

    def next_token(opened: RowOpen, sampled: list[int], state: int) -> int:
        return tokens[len(sampled)]

    return SchedulerHarness(worker=FakeWorker(limits, next_token=next_token), **settings)


def test_a_request_gets_its_tokens_one_entry_a_step_and_one_finish() -> None:
    run = SchedulerHarness()
    rid = run.submit([1, 2, 3], max_new_tokens=4)
    run.run()
    answer = run.answers[rid]
    assert answer.ids == run.expected(rid, 4)
    assert [len(entry.ids) for entry in answer.entries] == [1, 1, 1, 1]
    assert [entry.finish is not None for entry in answer.entries] == [False, False, False, True]
    assert (answer.last.finish.type, answer.last.finish.length) == ("length", 4)  # type: ignore[union-attr]
    assert (answer.last.prompt_tokens, answer.last.cached_tokens, answer.last.retractions) == (3, 0, 0)
    assert answer.opened.prompt_tail == [1, 2, 3]
    run.assert_at_rest()


def test_stage_times_come_from_the_clock_and_add_up() -> None:
    run = SchedulerHarness(max_running_requests=1)
    run.submit([1, 2], rid="a", max_new_tokens=3)
    run.submit([3, 4], rid="b", max_new_tokens=3)
    run.run()
    assert run.answers["a"].last.stage_times == {"queue": 0.0, "prefill": 1.0, "decode": 2.0}
    assert run.answers["b"].last.stage_times == {"queue": 3.0, "prefill": 1.0, "decode": 2.0}


@pytest.mark.parametrize("cached_first", [False, True])
@pytest.mark.parametrize("length", [1, 10, 400])
@pytest.mark.parametrize("new", [0, 1])
def test_b51_no_or_one_new_token(new: int, length: int, cached_first: bool) -> None:
    run = SchedulerHarness(context_length=512, total_slots=512, page_size=4, max_prefill_tokens=64)
    prompt = [i % 900 for i in range(length)]
    for attempt in range(2 if cached_first else 1):
        run.submit(prompt, rid=f"r{attempt}", max_new_tokens=new)
        run.run()
    answer = run.answers[f"r{attempt}"]
    assert answer.ids == run.expected(f"r{attempt}", new)
    assert len(answer.entries) == 1  # middle chunks say nothing
    assert (answer.last.finish.type, answer.last.finish.length) == ("length", new)  # type: ignore[union-attr]
    computed = sum(int(batch.new_tokens.sum()) for batch in run.worker.batches)
    assert computed == length + (length - (length - 1) // 4 * 4 if cached_first else 0)
    assert (sum(int(batch.sample.sum()) for batch in run.worker.batches)) == new * (attempt + 1)
    run.assert_at_rest()


def test_b51_many_in_a_row_leak_nothing() -> None:
    run = SchedulerHarness(total_slots=64, page_size=4, max_prefill_tokens=8)
    for i in range(100):
        run.submit([i % 7, *range(i % 13 + 3)], max_new_tokens=i % 2)
    run.run()
    assert [len(run.answers[f"r{i + 1}"].ids) for i in range(100)] == [i % 2 for i in range(100)]
    run.assert_at_rest()


@pytest.mark.parametrize("budget", [64, 4096])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 32, 400])
def test_b54_an_exact_repeat_computes_its_last_token_again(page_size: int, length: int, budget: int) -> None:
    run = SchedulerHarness(page_size=page_size, total_slots=1024, context_length=512, max_prefill_tokens=budget)
    prompt = [(7 * i) % 900 for i in range(length)]
    for attempt in range(3):
        rid = run.submit(prompt, rid=f"{attempt}", max_new_tokens=5)
        run.run()
        assert run.answers[rid].ids == run.expected(rid, 5)
        largest = (length - 1) // page_size * page_size
        assert run.answers[rid].last.cached_tokens == (largest if attempt else 0)
    run.assert_at_rest()


def test_a_following_turn_reuses_prompt_and_answer() -> None:
    run = SchedulerHarness(page_size=4, total_slots=256)
    first = run.submit([1, 2, 3, 4, 5], max_new_tokens=8)
    run.run()
    dialogue = [1, 2, 3, 4, 5, *run.answers[first].ids, 77]
    second = run.submit(dialogue, max_new_tokens=4)
    run.run()
    assert (
        run.answers[second].last.cached_tokens == 12
    )  # 12 tokens have their KV: the last answer token was not computed
    assert run.answers[second].ids == run.expected(second, 4)


@pytest.mark.parametrize(
    ("sampling", "ids", "matched"),
    [
        ({}, [5, 6, 2], 2),
        ({"ignore_eos": True}, [5, 6, 2, 7, 3, 2, 9, 9], None),
        ({"stop_token_ids": (7,)}, [5, 6, 2], 2),
        ({"stop_token_ids": (6,)}, [5, 6], 6),
        ({"stop_token_ids": (7,), "ignore_eos": True}, [5, 6, 2, 7], 7),
        ({"max_new_tokens": 3}, [5, 6, 2], 2),
        ({"max_new_tokens": 2}, [5, 6], None),
    ],
)
def test_end_tokens_stop_ids_and_length(sampling: dict[str, Any], ids: list[int], matched: int | None) -> None:
    run = scripted([5, 6, 2, 7, 3, 2, 9, 9], eos_token_ids=(2, 3))
    rid = run.submit([1], **{"max_new_tokens": 8, **sampling})
    run.run()
    answer = run.answers[rid]
    assert answer.ids == ids
    finish = answer.last.finish
    assert finish is not None
    assert finish.type == ("length" if matched is None else "stop")
    assert finish.matched == matched
    run.assert_at_rest()


def test_what_the_worker_is_told_of_a_request() -> None:
    run = SchedulerHarness(seed=3)
    run.submit([4, 5], temperature=0.5, top_k=7, top_p=0.9, min_p=0.1, seed=1234, max_new_tokens=1)
    run.submit([4, 5, 6], max_new_tokens=1)
    run.run()
    first, second = [opened for batch in run.worker.batches for opened in batch.opened]
    assert (first.temperature, first.top_k, first.top_p, first.min_p, first.seed) == (0.5, 7, 0.9, 0.1, 1234)
    assert first.history.tolist() == [4, 5]
    again = SchedulerHarness(seed=3)
    again.submit([9], max_new_tokens=1)
    again.submit([9], max_new_tokens=1)
    again.run()
    drawn = [opened.seed for batch in again.worker.batches for opened in batch.opened]
    assert drawn[1] == second.seed  # the same run seed and number give the same seed
    assert drawn[0] != drawn[1]
    assert all(0 <= seed < 2**63 for seed in drawn)


def test_a_salt_keeps_prefixes_apart() -> None:
    run = SchedulerHarness()
    from jackfield.ipc.messages import SamplingParams, TokenizedGenerateRequest

    for rid, salt in (("a", "x"), ("b", "y"), ("c", "x"), ("d", None)):
        sampling = SamplingParams(max_new_tokens=1)
        run.inbox.send(TokenizedGenerateRequest(rid=rid, input_ids=[1, 2, 3, 4], sampling=sampling, cache_salt=salt))
        run.run()
    assert [run.answers[rid].last.cached_tokens for rid in "abcd"] == [0, 0, 3, 0]


def test_namespaces_are_unambiguous() -> None:
    some = [("1", 0, None), ("1", 0, ""), ("10", 0, None), ("1", 1, None), ("1", 0, "0"), ("", 0, "1")]
    assert len({cache_namespace(*parts) for parts in some}) == len(some)


def test_tenant_codes() -> None:
    assert tenant_code(None) == 0
    codes = {tenant_code(name) for name in ("", "a", "b", "ab")}
    assert len(codes) == 4
    assert all(0 < code < 2**31 for code in codes)


@settings(max_examples=30, deadline=None)
@given(
    page_size=st.sampled_from([1, 4, 16]),
    budget=st.integers(1, 40),
    places=st.integers(1, 8),
    shared=st.booleans(),
    requests=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60), st.integers(0, 12)), min_size=1, max_size=12),
)
def test_tokens_are_the_same_alone_and_in_any_company(
    page_size: int, budget: int, places: int, shared: bool, requests: list[tuple[int, int, int]]
) -> None:
    run = SchedulerHarness(
        page_size=page_size,
        total_slots=128,
        max_prefill_tokens=budget,
        max_running_requests=places,
        cache=None if shared else NoSharingCache(page_size),
    )
    for family, length, new in requests:
        run.submit([family, *range(length)][:length], max_new_tokens=new)
    run.run()
    for i, (_, _, new) in enumerate(requests):
        assert run.answers[f"r{i + 1}"].ids == run.expected(f"r{i + 1}", new)
    assert max(int(batch.new_tokens.sum()) for batch in run.worker.batches) <= max(budget, places)
    run.assert_at_rest()
