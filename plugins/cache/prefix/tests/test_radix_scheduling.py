"""The radix cache in a whole scheduler whose worker checks every slot: each strategy under a pool that is always too small."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield_cache_prefix.options import Eviction
from jackfield_cache_prefix.radix_cache import RadixCache

EVICTIONS: tuple[Eviction, ...] = get_args(Eviction)


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("eviction", EVICTIONS)
def test_b55_b57_answers_and_sums_are_right_under_every_strategy(eviction: Eviction, page_size: int) -> None:
    """Requests of some priorities over few prompts, some aborted; after every step the pool's sum is exact (B57), and no
    running request loses a slot (B55: the worker would read another prefix)."""
    cache = RadixCache(page_size, eviction)
    run = SchedulerHarness(cache=cache, page_size=page_size, total_slots=112)
    rng = np.random.default_rng(page_size)
    wanted: dict[str, int] = {}
    for number in range(150):
        head = [int(rng.integers(1, 4))] * int(rng.integers(1, 30))
        prompt = head + [number % 7 + 10] * int(rng.integers(1, 9))
        count = int(rng.integers(1, 12))
        rid = run.submit(prompt, max_new_tokens=count, ignore_eos=True, priority=int(rng.integers(-2, 3)))
        wanted[rid] = count
        if number % 10 == 9:
            run.abort(rid)
            del wanted[rid]
        for _ in range(int(rng.integers(0, 4))):
            run.turn()
        cache.check()
    run.run()
    run.assert_at_rest()
    for rid, count in wanted.items():
        assert run.answers[rid].ids == run.expected(rid, count)
    assert sum(answer.last.cached_tokens for answer in run.answers.values()) > 300
    assert run.scheduler._memory.evicted > 300


def test_a_request_that_waits_for_memory_uses_its_prefix_once() -> None:
    """It is at the head for many steps, however often it is looked up there."""
    cache = RadixCache(1, "slru")
    run = SchedulerHarness(
        cache=cache, total_slots=64, schedule_conservativeness=11
    )  # everybody's worst case is reserved
    run.submit([1, 2, 3, 4], max_new_tokens=1)
    run.run()
    run.submit([9] * 10, max_new_tokens=40, ignore_eos=True)
    run.turn()
    waiting = run.submit([1, 2, 3, 4, 5], max_new_tokens=20, ignore_eos=True)
    for _ in range(15):
        run.turn()
        assert not run.answers[waiting].entries
    run.run()
    assert run.answers[waiting].last.cached_tokens == 4
    uses = {tuple(cache.tree.prefix(node).tolist()): node.uses for node in cache.tree.nodes()}
    assert uses[1, 2, 3, 4] == 2


@pytest.mark.parametrize(("eviction", "kept"), [("priority", 11), ("lru", 0)])
def test_the_priority_of_a_request_reaches_the_strategy(eviction: Eviction, kept: int) -> None:
    """An urgent request's prompt outlives the many that come after it, also when it has grown by outputs."""
    run = SchedulerHarness(cache=RadixCache(1, eviction), total_slots=64)
    prompt = list(range(1, 13))
    run.submit(prompt, max_new_tokens=4, ignore_eos=True, priority=5)
    run.run()
    for number in range(20):
        run.submit([100 + number] * 20, max_new_tokens=2, ignore_eos=True)
        run.run()
    rid = run.submit(prompt, max_new_tokens=1)
    run.run()
    assert run.answers[rid].last.cached_tokens == kept
