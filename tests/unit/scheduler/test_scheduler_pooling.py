"""Runs that pool, in a scheduler on fakes: what comes of a prompt, what it leaves behind, and what a worker may not give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jackfield.hookspecs import Pooling, WorkerLimits, WorkerResult
from jackfield.managers.scheduler.pooled import BadPooled
from jackfield.testing.scheduler_fakes import FakeLaunched, FakePending, FakeWorker, extend_hash, pooled_values
from jackfield.testing.scheduler_harness import SchedulerHarness

WHOLE = Pooling(kind="embedding", width=2)
LAST = Pooling(kind="embedding", width=2, whole=False)


def harness(pooling: Pooling, **config: Any) -> SchedulerHarness:
    if pooling.whole:
        config = {"chunked_prefill_size": -1, **config}
    return SchedulerHarness(pooling=pooling, **config)


def wanted(prompt: list[int]) -> list[float]:
    state = 0
    for token in prompt:
        state = extend_hash(state, token)
    return [float(value) for value in pooled_values(state)]


def given(run: SchedulerHarness, rid: str) -> list[float]:
    answer = run.answers[rid]
    assert answer.ids == []
    assert answer.finish is not None
    assert answer.finish.type == "stop"
    return [float(value) for value in np.frombuffer(answer.last.pooled, "<f4")]


@pytest.mark.parametrize("pooling", [WHOLE, LAST])
def test_each_prompt_gets_its_own_values(pooling: Pooling) -> None:
    run = harness(pooling, max_running_requests=3)
    prompts = [list(range(n, 2 * n + 1)) for n in (1, 5, 9, 30, 2, 7)]
    rids = [run.submit(prompt, max_new_tokens=0) for prompt in prompts]
    run.run()
    assert [given(run, rid) for rid in rids] == [wanted(prompt) for prompt in prompts]
    assert all(not batch.sample.any() for batch in run.worker.batches)
    run.assert_at_rest()


def test_whole_prompts_are_not_cut_not_cached_and_do_not_wait_for_their_twin() -> None:
    run = harness(WHOLE, max_prefill_tokens=16)
    long = list(range(100))
    rids = [run.submit(prompt, max_new_tokens=0) for prompt in (long, [1, 2, 3], [1, 2, 3], long)]
    run.run()
    assert [given(run, rid) for rid in rids] == [wanted(run.prompts[rid]) for rid in rids]
    assert [batch.new_tokens.tolist() for batch in run.worker.batches] == [[100], [3, 3], [100]]
    assert all(batch.pool is not None and batch.pool.all() for batch in run.worker.batches)
    state = run.scheduler.state()
    assert (state.free, state.evictable) == (state.total, 0), "nothing is kept"
    assert [run.answers[rid].last.cached_tokens for rid in rids] == [0, 0, 0, 0]


def test_last_states_come_of_chunks_and_cached_prefixes() -> None:
    run = harness(LAST, chunked_prefill_size=8, max_prefill_tokens=8)
    first = run.submit(list(range(20)), max_new_tokens=0)
    run.run()
    second = run.submit([*range(16), 5, 6], max_new_tokens=0)
    run.run()
    assert [given(run, rid) for rid in (first, second)] == [wanted(run.prompts[rid]) for rid in (first, second)]
    pools = [None if batch.pool is None else batch.pool.tolist() for batch in run.worker.batches]
    assert pools == [[False], [False], [True], [True]]
    assert run.answers[second].last.cached_tokens == 16
    run.assert_at_rest()


def test_an_abort_before_the_step_leaves_nothing() -> None:
    run = harness(WHOLE, max_prefill_tokens=16)
    rids = [run.submit(list(range(60)), max_new_tokens=0) for _ in range(3)]
    run.turn()
    run.abort(rids[2])
    run.run()
    finish = run.answers[rids[2]].finish
    assert finish is not None
    assert finish.type == "abort"
    assert run.answers[rids[2]].last.pooled == b""
    run.assert_at_rest()


def test_pooled_requests_time_out_like_others() -> None:
    run = harness(WHOLE, max_prefill_tokens=16, request_waiting_timeout=1.5)
    rids = [run.submit(list(range(60)), max_new_tokens=0) for _ in range(5)]
    run.run()
    finishes = [finish for rid in rids if (finish := run.answers[rid].finish) is not None]
    assert [finish.type for finish in finishes] == ["stop", "stop", "abort", "abort", "abort"]
    assert {finish.status_code for finish in finishes[2:]} == {503}
    run.assert_at_rest()


def test_the_row_that_fails_ends_alone() -> None:
    run = harness(WHOLE)
    run.worker.failing.add(2)
    rids = [run.submit([n, n + 1], max_new_tokens=0) for n in range(3)]
    run.run()
    assert given(run, rids[0]) == wanted([0, 1])
    assert given(run, rids[2]) == wanted([2, 3])
    finish = run.answers[rids[1]].finish
    assert finish is not None
    assert finish.status_code == 500
    run.assert_at_rest()


class Sick(FakeWorker):
    """Gives `values` of batch row 0, in place of what is right."""

    values: Any = None

    def sample(self, launched: Any, masks: object = None) -> Any:
        assert isinstance(launched, FakeLaunched)
        result = super().sample(launched, masks).result()
        kept = {i: value for i, value in result.pooled.items() if i}
        pooled = kept if self.values is None else {**kept, 0: self.values}
        return FakePending(WorkerResult(tokens=result.tokens, starts=result.starts, pooled=pooled))


def sick(values: Any) -> SchedulerHarness:
    limits = WorkerLimits(max_rows=9, max_context=128, total_slots=256, page_size=1, vocab_size=1000, max_tokens=4096)
    worker = Sick(limits)
    worker.values = values
    return harness(WHOLE, worker=worker)


def test_values_that_are_not_finite_end_their_request_alone() -> None:
    run = sick(np.array([np.nan, 1], dtype=np.float32))
    rids = [run.submit([n, n + 1], max_new_tokens=0) for n in range(2)]
    run.run()
    finish = run.answers[rids[0]].finish
    assert finish is not None
    assert finish.status_code == 500
    assert given(run, rids[1]) == wanted([1, 2])
    run.assert_at_rest()


@pytest.mark.parametrize(
    "values",
    [None, [1.0, 2.0], np.zeros(2), np.zeros(3, dtype=np.float32), np.zeros((1, 2), dtype=np.float32)],
    ids=["nothing", "a list", "float64", "too many", "a matrix"],
)
def test_what_does_not_fit_the_run_stops_the_replica(values: Any) -> None:
    run = sick(values)
    run.submit([1, 2], max_new_tokens=0)
    with pytest.raises(BadPooled, match="batch row 0"):
        run.run()


def test_a_scheduler_refuses_to_cut_whole_prompts() -> None:
    with pytest.raises(ValueError, match="chunked_prefill_size must be -1"):
        SchedulerHarness(pooling=WHOLE)
