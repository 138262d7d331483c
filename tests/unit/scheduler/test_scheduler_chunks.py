"""`chunked_prefill_size`: how a prompt is cut, or never; and that prompts without end leave running requests their turn
(B49, B53)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jackfield.hookspecs import (
    Chosen,
    DecodeTurn,
    PrefixCache,
    RequestTable,
    SchedulePolicy,
    SchedulerView,
    StepBudget,
    StepOutcome,
)
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield_cache_prefix.chunk_cache import ChunkCache
from jackfield_cache_prefix.radix_cache import RadixCache
from jackfield_scheduler_loops.normal import NormalLoop
from jackfield_scheduler_loops.overlap import OverlapLoop

CACHES: dict[str, Callable[[int], PrefixCache]] = {"radix": RadixCache, "chunk": ChunkCache}


def steps(run: SchedulerHarness) -> list[tuple[int, int]]:
    """(prompt tokens, decodes) of each batch; a decode is a row of one token whose request has sampled before."""
    told = []
    for batch in run.worker.batches:
        prompts = int(batch.new_tokens[~batch.relay & ((batch.new_tokens > 1) | (batch.computed == 0))].sum())
        told.append((prompts, int(batch.new_tokens.sum()) - prompts))
    return told


@pytest.mark.parametrize("loop", [NormalLoop, OverlapLoop])
@pytest.mark.parametrize("cache", list(CACHES))
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("chunk", [16, 17, 64, -1, None])
def test_b53_a_prompt_is_the_same_in_chunks_of_any_size(
    loop: Any, cache: str, page_size: int, chunk: int | None
) -> None:
    if chunk == 17 and page_size == 16:
        with pytest.raises(ValueError, match=r"chunk of 17 tokens .* pages of 16"):
            SchedulerHarness(page_size=16, chunked_prefill_size=17)
        return
    run = SchedulerHarness(
        cache=CACHES[cache](page_size),
        page_size=page_size,
        context_length=512,
        total_slots=2048,
        max_prefill_tokens=128,
        chunked_prefill_size=chunk,
    )
    turns = loop(run.scheduler)
    prompt = [(7 * i) % 900 for i in range(300)]
    for rid in ("cold", "warm"):
        run.submit(prompt, rid=rid, max_new_tokens=6)
        run.submit([1, 2, 3], rid=f"{rid}-neighbour", max_new_tokens=9)
        while turns.step() is StepOutcome.RAN:
            pass
        run.collect()
        for request in (rid, f"{rid}-neighbour"):
            assert run.answers[request].ids == run.expected(request, len(run.answers[request].ids))
            assert run.answers[request].finish is not None
    most = max(int(batch.new_tokens.max()) for batch in run.worker.batches)
    assert most == (300 if chunk == -1 else 128 if chunk is None else chunk)
    assert run.answers["warm"].last.cached_tokens == (0 if cache == "chunk" else 299 if page_size == 1 else 288)
    run.assert_at_rest()


def test_a_chunk_leaves_the_rest_of_the_step_to_others() -> None:
    run = SchedulerHarness(max_prefill_tokens=64, chunked_prefill_size=16, hold_back_tokens=0)
    run.submit(list(range(40)), max_new_tokens=2)
    run.submit(list(range(100, 110)), max_new_tokens=2)
    run.submit(list(range(200, 230)), max_new_tokens=2)  # would be cut as well, and one cut at a time is the budget
    run.turn()
    assert run.worker.batches[0].new_tokens.tolist() == [16, 10]
    run.run()
    assert all(batch.new_tokens.max() <= 16 for batch in run.worker.batches)
    run.assert_at_rest()


def test_a_prompt_that_is_never_cut_runs_alone_when_it_is_longer_than_the_step() -> None:
    run = SchedulerHarness(max_prefill_tokens=16, chunked_prefill_size=-1, total_slots=1024, hold_back_tokens=0)
    lengths = [5, 6, 40, 3, 100, 16, 1]
    for i, length in enumerate(lengths):
        run.submit([100 * i] * length, max_new_tokens=4)
    run.run()
    prefills = [batch for batch in run.worker.batches if not batch.computed.any()]
    assert [batch.new_tokens.tolist() for batch in prefills] == [[5, 6], [40], [3], [100], [16], [1]]
    for rid in run.prompts:
        assert run.answers[rid].ids == run.expected(rid, 4)
    run.assert_at_rest()


class Halving(SchedulePolicy):
    """Would cut every prompt."""

    def order(self, waiting: RequestTable, view: SchedulerView) -> None:
        return None

    def take(self, row: int, most: int, waiting: RequestTable, chosen: Chosen, view: SchedulerView) -> int:
        return max(1, most // 2)


def test_no_policy_cuts_a_prompt_that_is_never_cut() -> None:
    run = SchedulerHarness(policy=Halving(), chunked_prefill_size=-1, max_skips=3)
    rid = run.submit(list(range(40)), max_new_tokens=2)
    for _ in range(5):
        run.turn()
    assert run.answers[rid].ids == run.expected(rid, 2)  # when it was overdue, the policy was not asked
    assert run.worker.batches[0].new_tokens.tolist() == [40]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"chunked_prefill_size": 0}, "chunked_prefill_size is 0"),
        ({"chunked_prefill_size": 65, "max_prefill_tokens": 64}, "chunked_prefill_size is 65; .* 64"),
        ({"chunked_prefill_size": 12, "page_size": 8}, "chunk of 12 tokens .* pages of 8"),
        ({"chunked_prefill_size": -1, "max_tokens": 135}, "136 tokens exceeds .* 135"),
        ({"max_consecutive_prefills": 0}, "max_consecutive_prefills is 0"),
    ],
)
def test_sizes_that_cannot_be_are_refused_at_start(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SchedulerHarness(**config)


class After(SchedulePolicy):
    def order(self, waiting: RequestTable, view: SchedulerView) -> None:
        return None


class Turn(After):
    def __init__(self, turn: DecodeTurn) -> None:
        self.turn = turn

    def budget(self, view: SchedulerView) -> StepBudget:
        return StepBudget(decode=self.turn)


@pytest.mark.parametrize("loop", [NormalLoop, OverlapLoop])
@pytest.mark.parametrize("bound", [1, 3])
def test_b49_prompts_without_end_leave_running_requests_their_turn(loop: Any, bound: int) -> None:
    run = SchedulerHarness(
        max_running_requests=100,
        total_slots=4096,
        max_prefill_tokens=8,
        chunked_prefill_size=8,
        max_consecutive_prefills=bound,
        hold_back_tokens=0,
    )
    turns = loop(run.scheduler)
    run.submit([1, 2, 3], rid="runs", max_new_tokens=12)
    sent = 0
    while run.answers.get("runs") is None or run.answers["runs"].finish is None:
        run.submit([(sent + j) % 900 for j in range(24)], max_new_tokens=1)  # three chunks: more work than steps
        sent += 1
        assert turns.step() is StepOutcome.RAN
        run.collect()
        assert sent < 200
    shapes = steps(run)
    first = next(i for i, (_, decodes) in enumerate(shapes) if decodes)
    gap = 0
    for prompts, decodes in shapes[first:]:
        gap = 0 if decodes else gap + 1
        assert gap <= bound
        assert not (prompts and decodes)
    assert sum(prompts > 0 for prompts, _ in shapes) >= bound * 10  # prompts progress, too
    assert run.answers["runs"].ids == run.expected("runs", 12)


@pytest.mark.parametrize("turn", list(DecodeTurn))
def test_the_bound_counts_only_steps_in_which_somebody_could_decode(turn: DecodeTurn) -> None:
    run = SchedulerHarness(policy=Turn(turn), max_prefill_tokens=8, max_consecutive_prefills=2)
    rid = run.submit(list(range(100)), max_new_tokens=2)
    run.run()
    assert [batch.new_tokens.tolist() for batch in run.worker.batches] == [[8]] * 12 + [[4], [1]]
    assert run.answers[rid].ids == run.expected(rid, 2)


def test_only_whole_pages_of_a_chunk_are_shared_before_the_prompt_is_complete() -> None:
    run = SchedulerHarness(page_size=4, max_prefill_tokens=64, chunked_prefill_size=8)
    run.submit(list(range(30)), max_new_tokens=1)
    run.turn()
    assert run.scheduler.state().protected == 8
    assert np.array_equal(run.worker.batches[0].new_tokens, [8])
    run.run()
    run.assert_at_rest()
