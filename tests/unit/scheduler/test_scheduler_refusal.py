"""Who did not fit is looked up in the cache again only when something changed for it."""

from __future__ import annotations

from jackfield.hookspecs import CacheKey, Lease
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield_cache_prefix.radix_cache import RadixCache


class Counted(RadixCache):
    """uses: first tokens of the keys that were acquired."""

    def __init__(self) -> None:
        super().__init__(1)
        self.acquired: list[int] = []

    def acquire(self, key: CacheKey, limit: int) -> Lease:
        self.acquired.append(int(key.tokens[0]))
        return super().acquire(key, limit)


def blocked(total: int = 64) -> tuple[SchedulerHarness, Counted]:
    """One runs for 30 steps, and one does not fit beside it; a part of its prompt is cached."""
    cache = Counted()
    run = SchedulerHarness(cache=cache, total_slots=total, schedule_conservativeness=11.0, hold_back_tokens=0)
    run.submit([2] * 10, rid="past", max_new_tokens=1)
    run.run()
    run.submit([1] * 10, rid="runs", max_new_tokens=30)
    run.submit([2] * 20, rid="waits", max_new_tokens=20)
    run.turn()
    assert (run.scheduler.state().running, run.scheduler.state().waiting) == (1, 1)
    return run, cache


def test_nobody_is_looked_up_again_while_nothing_changes() -> None:
    run, cache = blocked()
    for _ in range(20):
        run.turn()
    # Once when it came, and once after the commit of the other's prompt, which changed the cache.
    assert cache.acquired.count(2) == 3
    run.run()
    assert cache.acquired.count(2) == 4
    assert run.answers["runs"].ids == run.expected("runs", 30)
    assert run.answers["waits"].ids == run.expected("waits", 20)
    assert run.answers["waits"].last.cached_tokens == 10
    run.assert_at_rest()


def test_memory_that_comes_free_lets_it_in_at_once() -> None:
    run, _ = blocked()
    for _ in range(5):
        run.turn()
    run.abort("runs")
    run.turn()
    assert (run.scheduler.state().running, run.scheduler.state().waiting) == (1, 0)
    run.run()
    assert run.answers["waits"].ids == run.expected("waits", 20)
    run.assert_at_rest()


def test_a_promise_that_shrinks_lets_it_in_as_well() -> None:
    """Nothing is freed and the cache does not change: the one that runs is expected to take less."""
    cache = Counted()
    run = SchedulerHarness(cache=cache, total_slots=96, context_length=96, hold_back_tokens=0)
    run.submit([1] * 4, rid="runs", max_new_tokens=90)
    run.submit([2] * 20, rid="waits", max_new_tokens=20)
    for _ in range(10):
        run.turn()
    assert run.scheduler.state().running == 1
    looked_up = cache.acquired.count(2)
    run.turn()
    assert cache.acquired.count(2) == looked_up
    run.scheduler._ratio.value = 0.1
    run.turn()
    assert run.scheduler.state().running == 2
    run.run()
    assert run.answers["waits"].ids == run.expected("waits", 20)
    run.assert_at_rest()


def test_another_at_the_head_is_looked_up() -> None:
    run, cache = blocked()
    for _ in range(5):
        run.turn()
    run.abort("waits")
    run.submit([3] * 4, rid="small", max_new_tokens=2)
    run.turn()
    run.run()
    assert run.answers["small"].ids == run.expected("small", 2)
    assert cache.acquired.count(3) == 1
    run.assert_at_rest()
