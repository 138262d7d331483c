"""What policies are told of the cache: exact while few wait, and a bounded number of look-ups a step with many waiting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from jackfield.hookspecs import CacheKey, PrefixForest, RequestTable, SchedulePolicy, SchedulerView
from jackfield.managers.scheduler import hints
from jackfield.testing.page_cache import PageCache
from jackfield.testing.scheduler_harness import SchedulerHarness

MANY = 400


class Asked(PageCache):
    """keys of each call; `length` is what it says that it has of every key."""

    def __init__(self) -> None:
        super().__init__(1)
        self.peeks: list[list[int]] = []
        self.forests: list[list[int]] = []
        self.length = 0

    def peek(self, keys: Sequence[CacheKey]) -> NDArray[np.int32]:
        self.peeks.append([int(key.tokens[0]) for key in keys])
        return np.full(len(keys), self.length, dtype=np.int32)

    def forest(self, keys: Sequence[CacheKey]) -> PrefixForest:
        self.forests.append([int(key.tokens[0]) for key in keys])
        return super().forest(keys)


class Declining(SchedulePolicy):
    """Sorts backwards and runs nobody: what it saw is kept."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.views: list[SchedulerView] = []

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        self.seen.append(waiting.cached_tokens.tolist())
        self.views.append(view)
        return np.arange(len(waiting))[::-1]

    def take(self, row: int, most: int, waiting: RequestTable, chosen: object, view: SchedulerView) -> int:
        return 0


def crowd(need: str, count: int = MANY, length: int = 4) -> tuple[SchedulerHarness, Asked, Declining]:
    cache, policy = Asked(), Declining()
    run = SchedulerHarness(
        cache=cache,
        policy=policy,
        policy_needs=frozenset({need}),
        max_skips=10**6,
        hold_back_tokens=0,
        context_length=4096,
        total_slots=8192,
        max_tokens=16384,
    )
    for i in range(count):
        run.submit([i] * length, max_new_tokens=1)
    return run, cache, policy


def test_a_step_looks_up_no_more_than_the_bound_and_everybody_in_the_end() -> None:
    run, cache, policy = crowd("cached_tokens")
    cache.length = 1
    turns = 0
    while not policy.seen or not all(policy.seen[-1]):
        run.turn()
        turns += 1
    assert [len(keys) for keys in cache.peeks] == [hints.KEYS, hints.KEYS, hints.KEYS, MANY - 3 * hints.KEYS]
    assert sorted(key for keys in cache.peeks for key in keys) == list(range(MANY))
    for _ in range(3):
        run.turn()
    assert len(cache.peeks) == turns  # nothing changed, and nobody is looked up again


def test_after_a_change_the_head_of_the_order_comes_first_and_everybody_within_the_stated_bound() -> None:
    run, cache, _ = crowd("cached_tokens")
    while not cache.peeks or len(cache.peeks[-1]) == hints.KEYS:
        run.turn()
    for change in range(1, 4):
        cache.length = change
        run.scheduler._memory.changes += 1
        run.turn()
        assert len(cache.peeks[-1]) == hints.KEYS
        head = range(MANY - 1, MANY - 1 - hints.KEYS // 4, -1)
        assert set(head) <= set(cache.peeks[-1])
    looked: set[int] = set()
    for _ in range(4 * MANY // hints.KEYS):
        run.scheduler._memory.changes += 1  # it changes in every step, and the head takes its share of each
        run.turn()
        looked |= set(cache.peeks[-1])
    assert looked == set(range(MANY))


def test_who_comes_is_looked_up_before_older_hints_are_renewed() -> None:
    run, cache, _ = crowd("cached_tokens")
    for _ in range(4):
        run.turn()
    run.submit([900] * 4, max_new_tokens=1)
    run.scheduler._memory.changes += 1
    run.turn()
    assert 900 in cache.peeks[-1]
    assert len(cache.peeks[-1]) == hints.KEYS


@pytest.mark.parametrize("need", ["cached_tokens", "forest"])
def test_long_prompts_are_bounded_by_their_tokens(need: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "TOKENS", 100)
    run, cache, _ = crowd(need, 20, length=40)
    run.turn()
    asked = cache.peeks if need == "cached_tokens" else cache.forests
    assert len(asked[-1]) == 2
    monkeypatch.setattr(hints, "TOKENS", 10)
    run.scheduler._memory.changes += 1
    run.turn()
    assert len(asked[-1]) == 1  # one at least, or nothing would ever be known


def test_the_forest_covers_those_who_came_first() -> None:
    run, cache, policy = crowd("forest")
    run.turn()
    assert cache.forests == [list(range(hints.KEYS))]
    forest = policy.views[-1].forest
    assert forest is not None
    assert len(forest.node) == len(forest.matched) == MANY
    assert (forest.node[hints.KEYS :] == -1).all()
    run.submit([999], max_new_tokens=1)  # it changes nothing for those who are looked up
    run.turn()
    assert len(cache.forests) == 1
    forest = policy.views[-1].forest
    assert forest is not None
    assert len(forest.node) == MANY + 1
    run.abort("r1")
    run.turn()
    assert cache.forests[1] == list(range(1, hints.KEYS + 1))


def test_few_who_wait_are_all_looked_up_in_the_step_after_a_change() -> None:
    run, cache, policy = crowd("cached_tokens", hints.KEYS)
    for length in (0, 3, 2):
        cache.length = length
        run.scheduler._memory.changes += 1
        run.turn()
        assert policy.seen[-1] == [length] * hints.KEYS
